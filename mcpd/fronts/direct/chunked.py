"""A body in chunks (RFC 9112, 7.1). Extensions and trailer fields are read past: nobody here has a use for them."""

from __future__ import annotations

import re
from typing import Final

from mcpd.fronts.direct.malformed import MalformedError

MAX_LINE: Final = 4 * 1024
"""Bytes of a chunk's size with its extensions."""
MAX_TRAILERS: Final = 16 * 1024
"""Bytes of all trailer fields."""

_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;[\t\x20-\x7e\x80-\xff]*+)?\r\n")
_FIELDS: Final = re.compile(rb"(?:[-!#$%&'*+.^_`|~0-9A-Za-z]++:[\t\x20-\x7e\x80-\xff]*+\r\n)*+\r\n")
# "A sender MUST NOT generate a trailer field" of these (RFC 9110, 6.5.1): they would frame what is framed already.
_FRAMING: Final = re.compile(rb"^(?:content-length|transfer-encoding):", re.IGNORECASE | re.MULTILINE)
_BARE_LF: Final = re.compile(rb"(?<!\r)\n")
_HEX: Final = b"0123456789abcdefABCDEF"


class ChunkedBody:
    """Decodes one body. What is not decodable yet stays where it is."""

    __slots__ = ("_begun", "_decoded", "_last", "_overhead", "_remaining", "complete")

    def __init__(self) -> None:
        self._remaining = 0
        """Bytes of the current chunk that have not come yet."""
        self._begun = False
        """There is a current chunk, whose end must be read."""
        self._last = False
        """The last chunk has come; trailer fields follow."""
        self._decoded = 0
        self._overhead = 0
        self.complete = False

    def decode(self, data: bytes, position: int) -> tuple[bytes, int]:
        """What *data* holds of the body from *position*, and the position up to which it was used.

        Raises:
          MalformedError: these are no chunks, or mostly something else.
        """
        pieces: list[bytes] = []
        while not self.complete:
            if self._remaining:
                piece = data[position : position + self._remaining]
                if not piece:
                    break
                pieces.append(piece)
                position += len(piece)
                self._remaining -= len(piece)
                self._decoded += len(piece)
                continue
            after = self._trailers(data, position) if self._last else self._size(data, position)
            if after is None:
                break
            self._overhead += after - position
            # Tiny chunks and long extensions would make a short body a long read.
            if self._overhead > 64 * 1024 + 8 * self._decoded:
                raise MalformedError(400, "The body is mostly chunk headers")
            position = after
        return b"".join(pieces), position

    def _size(self, data: bytes, position: int) -> int | None:
        if self._begun:
            end = data[position : position + 2]
            if end != b"\r\n":
                if b"\r\n".startswith(end):
                    return None
                raise MalformedError(400, "A chunk is longer than its size")
            self._begun = False
            return position + 2
        newline = data.find(b"\n", position, position + MAX_LINE)
        if newline < 0:
            if len(data) - position >= MAX_LINE or data[position : position + 1] not in _HEX:
                raise MalformedError(400, "A chunk's size is malformed")
            return None
        match = _SIZE.match(data, position)
        if match is None:
            raise MalformedError(400, "A chunk's size is malformed")
        self._remaining = int(match[1], 16)
        self._begun = self._remaining > 0
        self._last = not self._begun
        return match.end()

    def _trailers(self, data: bytes, position: int) -> int | None:
        whole = data.startswith(b"\r\n", position) or data.find(b"\r\n\r\n", position) >= 0
        if not whole and len(data) - position <= MAX_TRAILERS and _BARE_LF.search(data, position) is None:
            return None
        match = _FIELDS.match(data, position)
        if match is None or match.end() - position > MAX_TRAILERS:
            raise MalformedError(400, "The trailer fields are malformed or too long")
        if _FRAMING.search(match[0]) is not None:
            raise MalformedError(400, "A trailer field frames the body")
        self.complete = True
        return match.end()
