"""The direct front: HTTP/1.1 on Trio under the endpoint, with llhttp for the heads and nothing in between.

    listener.py    accepts, within a cap; drains
    connection.py  one task a connection: the next request, the endpoint inline, and so on
    exchange.py    one request and its response, as the endpoint sees them
    parser.py      requests out of bytes, strictly and without I/O;  chunked.py  bodies in chunks
    response.py    bytes of responses
    transport.py   bytes from and to one client: a socket, TLS, or any stream of Trio
    watcher.py     one epoll that tells of every client's end;  deadlines.py  one task for every limit of time

A connection costs one task and no timer, a request no task, no nursery and no cancel scope. What a client may take is
bounded: head, fields, body, the time for each, the time between requests, and connections.

When is a client gone? When its FIN or RST arrives. A FIN alone may also come from a client that only will not send any
more, but until something is written the two look the same, and MCP clients do not half-close: so a FIN ends what the
endpoint ends for a lost client. Requests that came whole before it are still run and answered, for a client may send a
notification and leave; whoever half-closes reads these answers.
"""
