"""The revisions of MCP as one table: what each has, so that nothing else compares dates.

"Respect the negotiated version": a server must not offer what the negotiated revision lacks
(changelogs of 2025-03-26, 2025-06-18, 2025-11-25 and 2026-07-28).
"""

from __future__ import annotations

from typing import Final

import msgspec


class Revision(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One revision. Each field names something the revision has."""

    name: str
    modern: bool = False
    """Stateless, with an envelope in every request; else ``initialize`` and sessions."""
    batches: bool = False
    """JSON-RPC arrays are accepted."""
    audio: bool = True
    """Audio content, tool annotations, the completions capability, progress messages."""
    structured: bool = True
    """Structured tool output, titles, resource links, elicitation."""
    icons: bool = True
    """Icons, URL elicitation, sampling with tools, server descriptions."""
    event_ids: bool = True
    """What comes on a stream has ids, by which it is resumed."""
    priming: bool = False
    """A stream starts with an event that has an id and no data (SEP-1699)."""
    bare_structure: bool = False
    """``structuredContent`` may be any JSON value; before, it is an object."""


_TABLE: Final = (
    Revision(name="2024-11-05", event_ids=False, audio=False, structured=False, icons=False),
    Revision(name="2025-03-26", batches=True, structured=False, icons=False),
    Revision(name="2025-06-18", icons=False),
    Revision(name="2025-11-25", priming=True),
    Revision(name="2026-07-28", modern=True, event_ids=False, bare_structure=True),
)

REVISIONS: Final = {revision.name: revision for revision in _TABLE}
LEGACY: Final = {revision.name: revision for revision in _TABLE if not revision.modern}
MODERN: Final = {revision.name: revision for revision in _TABLE if revision.modern}
LATEST_LEGACY: Final = _TABLE[3]
LATEST: Final = _TABLE[4]


def negotiate(requested: str) -> Revision:
    """The revision of a session whose client asked for *requested*.

    "If the server supports the requested protocol version, it MUST respond with the same version. Otherwise
    [...] another protocol version it supports. This SHOULD be the latest" (2025-11-25, basic/lifecycle).
    """
    return LEGACY.get(requested, LATEST_LEGACY)
