"""What replicas tell each other of a session, over the bus."""

# No `from __future__ import annotations`: msgspec reads these annotations at run time.
from typing import Final, Literal

import msgspec

TOPIC: Final = "sessions"


class Signal(msgspec.Struct, array_like=True):
    """An answer to a question, the cancellation of a call, a new standalone stream, or the end of the session."""

    sender: str
    """Which replica says it; it has done so itself."""
    kind: Literal["answer", "cancel", "listen", "end", "removed"]
    """``removed`` is an end as well, said by somebody who knows only the record's name."""
    key: str
    """The session's key; for ``removed`` the name that the store gives its record (`mcpd.ports.Inspectable`)."""
    data: bytes = b""
    """As JSON, whose integers know no bound: which call is cancelled, or the client's response. For ``listen`` the
    stream's name."""


encode_signal: Final = msgspec.msgpack.Encoder().encode
decode_signal: Final = msgspec.msgpack.Decoder(Signal).decode
