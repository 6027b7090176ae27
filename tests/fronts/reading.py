"""What a stream of bytes means: to the direct front's parser, and to h11, whose strictness is the measure."""

import itertools
from collections.abc import Iterable
from typing import NamedTuple

import h11

from mcpd.fronts.direct.malformed import MalformedError
from mcpd.fronts.direct.parser import Request, RequestParser, path_of
from mcpd.protocol.headers import Headers


class Read(NamedTuple):
    """One whole request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    close: bool


class Outcome(NamedTuple):
    """All whole requests, and how it ended."""

    requests: list[Read]
    error: str
    """Why the rest is refused; empty when there is no more, or more would have to come."""
    status: int = 0
    """What it is refused with."""


def ours(pieces: Iterable[bytes]) -> Outcome:
    """Read with our parser, which is fed piece by piece."""
    parser = RequestParser()
    found: list[Read] = []
    request: Request | None = None
    body = b""
    try:
        for piece in pieces:
            parser.feed(piece)
            while True:
                if request is None:
                    request = parser.next_request()
                    if request is None:
                        break
                body += parser.read_body()
                if not parser.complete:
                    break
                found.append(_new_read(request.method, request.path, request.headers, body, close=request.close))
                if request.close:
                    return Outcome(found, "")
                request, body = None, b""
    except MalformedError as exc:
        return Outcome(found, exc.message, exc.status)
    return Outcome(found, "")


def h11s(data: bytes) -> Outcome:
    """Read with h11, which gets it all at once."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    connection.receive_data(data)
    found: list[Read] = []
    request: h11.Request | None = None
    body = b""
    try:
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Request):
                request, body = event, b""
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                assert request is not None
                connection.send(h11.Response(status_code=400, headers=[("content-length", "0")]))
                connection.send(h11.EndOfMessage())
                close = connection.our_state is h11.MUST_CLOSE
                found.append(_read(request, body, close=close))
                if close:
                    return Outcome(found, "")
                connection.start_next_cycle()
            else:
                return Outcome(found, "")
    except h11.RemoteProtocolError as exc:
        return Outcome(found, str(exc), exc.error_status_hint)


def disagreement(data: bytes) -> str | None:
    """What the two make of *data* differently, where ours may not: it may only refuse more, or sooner."""
    strict, measure = ours([data]), h11s(data)
    if strict.requests != measure.requests[: len(strict.requests)]:
        return f"it is read differently: {strict} and by h11: {measure}"
    if not strict.error and measure.error:
        return f"h11 refuses it ({measure.error}): {strict}"
    if not strict.error and len(strict.requests) < len(measure.requests):
        return f"h11 has read more: {strict} and by h11: {measure}"
    return None


def torn(data: bytes, *cuts: int) -> list[bytes]:
    """*data* in pieces, cut at those places; the empty ones are left out, for they mean the end."""
    bounds = [0, *sorted(cuts), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(bounds) if start < end]


def _read(request: h11.Request, body: bytes, *, close: bool) -> Read:
    pairs = [(bytes(name), bytes(value)) for name, value in request.headers]
    try:
        path, authority = path_of(request.target)
    except MalformedError:
        # h11 leaves targets to the application; ours has refused it.
        path, authority = "", None
    if authority is not None:
        pairs = [pair for pair in pairs if pair[0] != b"host"] + [(b"host", authority)]
    return _new_read(request.method.decode(), path, Headers(pairs), body, close=close)


def _new_read(method: str, path: str, headers: Headers, body: bytes, *, close: bool) -> Read:
    fields = dict(headers)
    if "transfer-encoding" in fields:
        # h11 tells it in lower case.
        fields["transfer-encoding"] = fields["transfer-encoding"].lower()
    return Read(method, path, fields, body, close)
