"""``subscriptions/listen`` over HTTP: a stream that lasts until the client closes it, or the server ends it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from mcpd.endpoint.stream import HEADERS
from mcpd.errors import INVALID_REQUEST, ProtocolError
from mcpd.listening import Listening
from mcpd.protocol import sse

if TYPE_CHECKING:
    from mcpd.endpoint.endpoint import Endpoint
    from mcpd.endpoint.exchange import Post
    from mcpd.endpoint.stream import EventStream
    from mcpd.server.call import Call


class _Ending:
    """What ends the stream cleanly: first the result, then the stream."""

    def __init__(self, stream: EventStream, listening: Listening) -> None:
        self._stream = stream
        self._listening = listening
        self.finished = False

    def finish(self) -> None:
        self.finished = True
        self._stream.push(sse.message(self._listening.result))
        self._stream.finish()


async def listen(endpoint: Endpoint, post: Post, call: Call) -> None:
    """Answer a ``subscriptions/listen``.

    Raises:
      ProtocolError: the filter is refused, or the client takes no stream.
    """
    if not post.sse:
        raise ProtocolError(INVALID_REQUEST, "Accept must allow text/event-stream to listen", http_status=406)
    stream = endpoint.new_stream(post.exchange, "listen")

    async def send(message: bytes) -> None:
        await trio.lowlevel.checkpoint()
        stream.push(sse.message(message))

    listening = Listening(endpoint.core, call, send)
    ending = _Ending(stream, listening)
    stream.push(sse.message(listening.acknowledgement))
    post.exchange.on_close(stream.close)
    endpoint.streams.add(ending)
    endpoint.core.subscriptions.add(listening)
    began = trio.current_time()
    if listening.empty or endpoint.draining:
        # A stream that can never carry anything must not be held open: its client has been told so by the
        # acknowledgement.
        ending.finish()
    try:
        await stream.run([*HEADERS, *post.cors])
    finally:
        endpoint.core.subscriptions.remove(listening)
        endpoint.streams.discard(ending)
        outcome = "ok" if ending.finished else "cancelled"
        endpoint.core.meter.request("modern", call.method, outcome, trio.current_time() - began)
