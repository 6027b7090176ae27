"""No server at all: one answer, always the same, to whatever comes. `python floor.py PORT`.

What a call takes here is nearly all the kernel's, the hypervisor's and the load generator's.
"""

from __future__ import annotations

import socket
import sys
from threading import Thread

BODY = b'{"jsonrpc":"2.0","id":10000000,"result":{"content":[{"type":"text","text":"hello"}]}}'
ANSWER = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nmcp-session-id: none\r\ncontent-length: %d\r\n\r\n%b"
    % (len(BODY), BODY)
)


def answer(client: socket.socket) -> None:
    """Answer each packet: the load generator sends a request in one."""
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        while client.recv(65536):
            client.sendall(ANSWER)
    except ConnectionError:
        pass
    client.close()


listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()
