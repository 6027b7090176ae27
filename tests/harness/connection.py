"""One HTTP/1.1 connection of a client that can send anything."""

from __future__ import annotations

from collections import deque
from typing import Any, Final, Self

import h11
import trio

from tests.harness.ends import ClientEnd
from tests.harness.messages import encode_request
from tests.harness.responses import Event, Response, SseReader

WITHIN: Final = 60.0
"""Seconds (of the test's clock) that any one wait may take."""


class ConnectionLost(Exception):  # noqa: N818 - not an error of the library: what a client sees
    """The server closed the connection in the middle of a response, or without one."""


class Connection:
    """One connection of a client to the server; requests go one after the other, or pipelined."""

    def __init__(self, end: ClientEnd) -> None:
        self._end = end
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
        self._methods: deque[str] = deque()
        self.closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def request(self, method: str, path: str = "/mcp", *, within: float = WITHIN, **kwargs: Any) -> Response:
        """Send a request, and read its whole response."""
        await self.send(method, path, **kwargs)
        return await self.response(within=within)

    async def send(self, method: str, path: str = "/mcp", **kwargs: Any) -> None:
        """Send a request; read its response later."""
        await self.send_bytes(encode_request(method, path, **kwargs), method)

    async def send_bytes(self, data: bytes, method: str | None = None) -> None:
        """Send bytes as they are. With *method* they complete a request, whose response can be read."""
        if method is not None:
            self._methods.append(method)
        try:
            await self._end.send_all(data)
        except trio.BrokenResourceError:
            raise ConnectionLost("the server has closed the connection") from None

    async def response(self, *, within: float = WITHIN) -> Response:
        """The whole response to the oldest request without one."""
        with trio.fail_after(within):
            head = await self._head()
            pieces: list[bytes] = []
            while (piece := await self.piece()) is not None:
                pieces.append(piece)
        return Response(head.status_code, _fields(head), b"".join(pieces))

    async def stream(self, *, within: float = WITHIN) -> Stream:
        """The response to the oldest request without one, as it comes."""
        with trio.fail_after(within):
            head = await self._head()
        return Stream(self, head.status_code, _fields(head))

    @property
    def reusable(self) -> bool:
        """Whether a further request can be sent: the server has not closed, nor said that it will."""
        return not self.closed and not self._end.server_has_closed() and self._h11.their_state in {h11.IDLE, h11.DONE}

    async def piece(self) -> bytes | None:
        """The next piece of the response's body; None at its end."""
        event = await self._event()
        if isinstance(event, h11.EndOfMessage):
            return None
        assert isinstance(event, h11.Data), event
        return bytes(event.data)

    async def wait_closed(self, *, within: float = WITHIN) -> float:
        """Wait until the server closes the idle connection; the time when it did."""
        with trio.fail_after(within):
            try:
                data = await self._end.receive_some(65_536)
            except trio.BrokenResourceError:
                data = b""
        assert data == b"", f"the server said something nobody asked for: {data!r}"
        return trio.current_time()

    def cut(self) -> None:
        """Close abruptly (a TCP reset): what was not read yet is lost, on both sides."""
        self.leave(reset=True)

    async def half_close(self) -> None:
        """Say that nothing more will be sent (a TCP FIN), and go on reading."""
        await self._end.send_eof()

    async def aclose(self) -> None:
        """Close in good order."""
        self.leave(reset=False)
        await trio.lowlevel.checkpoint()

    def leave(self, *, reset: bool) -> None:
        if self.closed:
            return
        self.closed = True
        self._end.leave(reset=reset)

    async def _head(self) -> h11.Response:
        if self._h11.our_state is h11.DONE:
            self._h11.start_next_cycle()
        # The bytes of the request were ours; h11 has to know how its response is framed.
        self._h11.send(h11.Request(method=self._methods.popleft(), target="/", headers=[("host", "localhost")]))
        self._h11.send(h11.EndOfMessage())
        while True:
            event = await self._event()
            if isinstance(event, h11.Response):
                return event
            assert isinstance(event, h11.InformationalResponse), event

    async def _event(self) -> Any:
        while True:
            try:
                event = self._h11.next_event()
            except h11.RemoteProtocolError as exc:
                raise ConnectionLost(str(exc)) from None
            if isinstance(event, h11.ConnectionClosed):
                raise ConnectionLost("the server closed the connection without a response")
            if event is not h11.NEED_DATA:
                return event
            try:
                data = await self._end.receive_some(65_536)
            except trio.BrokenResourceError:
                raise ConnectionLost("the connection was reset") from None
            self._h11.receive_data(bytes(data))


class Stream:
    """A response on its way."""

    def __init__(self, connection: Connection, status: int, headers: dict[str, str]) -> None:
        self.connection = connection
        self.status = status
        self.headers = headers
        self.raw = b""
        """All bytes of the body so far."""
        self.heartbeats: list[float] = []
        """When comments came, on Trio's clock."""
        self.ended = False
        """The server has ended the response, in good order."""
        self.last_id: str | None = None
        """The id of the last event handed out."""
        self._reader = SseReader()

    async def event(self, *, within: float = WITHIN) -> Event | None:
        """The next event, also one without data; None when the stream has ended in good order.

        Raises:
          ConnectionLost: it was cut.
        """
        with trio.fail_after(within):
            while not self._reader.events and not self.ended:
                await self._read()
        if not self._reader.events:
            return None
        event = self._reader.events.popleft()
        self.last_id = event.id if event.id is not None else self.last_id
        return event

    async def message(self, *, within: float = WITHIN) -> Any:
        """The next JSON-RPC message."""
        while True:
            event = await self.event(within=within)
            assert event is not None, "the stream has ended"
            if event.data:
                return event.json

    async def rest(self, *, within: float = WITHIN) -> list[Any]:
        """All further JSON-RPC messages until the server ends the stream."""
        messages: list[Any] = []
        with trio.fail_after(within):
            while (event := await self.event()) is not None:
                if event.data:
                    messages.append(event.json)
        return messages

    async def heartbeat(self, *, within: float = WITHIN) -> float:
        """Wait for the next comment; the time when it came."""
        seen = len(self.heartbeats)
        with trio.fail_after(within):
            while len(self.heartbeats) == seen:
                assert not self.ended, "the stream has ended"
                await self._read()
        return self.heartbeats[seen]

    def cut(self) -> None:
        """Close the connection abruptly."""
        self.connection.cut()

    async def _read(self) -> None:
        data = await self.connection.piece()
        if data is None:
            self.ended = True
            self._reader.end()
            return
        self.raw += data
        before = self._reader.comments
        self._reader.feed(data)
        self.heartbeats += [trio.current_time()] * (self._reader.comments - before)


def _fields(head: h11.Response) -> dict[str, str]:
    fields: dict[str, str] = {}
    for raw_name, raw_value in head.headers:
        name, value = raw_name.decode(), raw_value.decode("latin-1")
        assert name not in fields or name in {"vary", "connection"}, f"the response has two {name} fields"
        fields[name] = f"{fields[name]}, {value}" if name in fields else value
    return fields
