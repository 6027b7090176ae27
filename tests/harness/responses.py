"""What clients get: whole responses, and server-sent events as the strictest client reads them."""

from __future__ import annotations

import json as json_module
from collections import deque
from dataclasses import dataclass
from typing import Any


@dataclass
class Event:
    """A server-sent event that has data or an id."""

    data: str
    id: str | None = None
    type: str = "message"
    retry: int | None = None

    @property
    def json(self) -> Any:
        """The message it carries."""
        return json_module.loads(self.data)


class SseReader:
    """Reads events as the strictest client would: lines end with LF, and nothing else is there."""

    def __init__(self) -> None:
        self.events: deque[Event] = deque()
        self.comments = 0
        self._rest = b""

    def feed(self, data: bytes) -> None:
        *blocks, self._rest = (self._rest + data).split(b"\n\n")
        for block in blocks:
            self._block(block)

    def end(self) -> None:
        assert self._rest == b"", f"the stream ends within an event: {self._rest!r}"

    def _block(self, block: bytes) -> None:
        text = block.decode()
        assert "\r" not in text, f"a carriage return is in {text!r}"
        event = Event("")
        data: list[str] | None = None
        for line in text.split("\n"):
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "":
                self.comments += 1
            elif name == "data":
                data = [*(data or ()), value]
            elif name == "id":
                event.id = value
            elif name == "event":
                event.type = value
            elif name == "retry":
                event.retry = int(value)
            else:
                raise AssertionError(f"no such field in SSE: {line!r}")
        if data is not None:
            event.data = "\n".join(data)
            self.events.append(event)


@dataclass
class Response:
    """A whole response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, which must be JSON."""
        assert self.headers.get("content-type") == "application/json", (self.status, self.headers, self.body)
        return json_module.loads(self.body)

    @property
    def events(self) -> list[Event]:
        """The body, which must be a stream."""
        assert self.headers.get("content-type") == "text/event-stream", (self.status, self.headers, self.body)
        reader = SseReader()
        reader.feed(self.body)
        reader.end()
        return list(reader.events)

    @property
    def messages(self) -> list[Any]:
        """All JSON-RPC messages in it, whichever form it has."""
        if self.headers.get("content-type") == "application/json":
            return [self.json]
        return [event.json for event in self.events if event.data]

    @property
    def answer(self) -> Any:
        """The one JSON-RPC response in it; it is the last message."""
        found = [message for message in self.messages if "method" not in message]
        assert len(found) == 1, f"{len(found)} responses: {self.body!r}"
        assert self.messages[-1] == found[0], "something comes after the response"
        return found[0]

    @property
    def result(self) -> Any:
        """The result of a request that must have succeeded."""
        assert "result" in self.answer, (self.status, self.answer)
        return self.answer["result"]

    @property
    def error(self) -> Any:
        """The error of a request that must have failed."""
        assert "error" in self.answer, (self.status, self.answer)
        return self.answer["error"]

    @property
    def text(self) -> str:
        """The first text of a tool's result."""
        text: str = self.result["content"][0]["text"]
        return text
