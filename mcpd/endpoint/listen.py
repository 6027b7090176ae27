"""``subscriptions/listen`` over HTTP: a stream that lasts until the client closes it, or the server ends it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from mcpd.endpoint.stream import HEADERS
from mcpd.errors import INVALID_REQUEST, ProtocolError
from mcpd.listening import Listening, last
from mcpd.protocol import sse

if TYPE_CHECKING:
    from mcpd.endpoint.endpoint import Endpoint
    from mcpd.endpoint.exchange import Admitted
    from mcpd.endpoint.stream import EventStream
    from mcpd.server.call import Call


class _Ending:
    """What ends the stream cleanly: first the result, then the stream."""

    def __init__(self, stream: EventStream, call: Call) -> None:
        self._stream = stream
        self._call = call
        self.finished = False

    def finish(self) -> None:
        if not self.finished:
            self.finished = True
            self._stream.push(sse.message(last(self._call)))
            self._stream.finish()


async def listen(endpoint: Endpoint, post: Admitted, call: Call) -> None:
    """Answer a ``subscriptions/listen``.

    Raises:
      ProtocolError: the filter is refused, the client takes no stream, or there are too many.
    """
    if not post.checked.sse:
        raise ProtocolError(INVALID_REQUEST, "Accept must allow text/event-stream to listen", http_status=406)
    with endpoint.stream_places.held(post.owner):
        await _hold(endpoint, post, call)


async def _hold(endpoint: Endpoint, post: Admitted, call: Call) -> None:
    stream = endpoint.new_stream(post.exchange, "listen")

    async def send(message: bytes) -> None:
        await trio.lowlevel.checkpoint()
        stream.push(sse.message(message))

    async def end() -> None:
        await trio.lowlevel.checkpoint()
        ending.finish()

    ending = _Ending(stream, call)
    listening = Listening(endpoint.core, call, send, end)
    post.exchange.on_close(stream.close)
    endpoint.core.subscriptions.add(listening)
    began = trio.current_time()
    try:
        await listening.begin()
        endpoint.streams.add(ending)
        if endpoint.draining:
            ending.finish()
        endpoint.end_with_token(post.principal, stream, ending.finish)
        await stream.run([*HEADERS, *post.checked.cors])
    finally:
        endpoint.core.subscriptions.remove(listening)
        endpoint.streams.discard(ending)
        outcome = "ok" if ending.finished else "cancelled"
        endpoint.core.meter.request("modern", call.method, outcome, trio.current_time() - began)
