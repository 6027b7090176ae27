"""Counting what a server does, so cheaply that it can always be on: plain numbers, metrics when somebody asks.

Labels come from closed sets (methods and tools that exist), so the number of series is the same whatever clients send.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mcpd.server.registry import Registry
    from mcpd.server.tools import ToolEntry

BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the duration histograms, in seconds."""


class Histogram:
    """Durations in buckets."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds


class Requests(Histogram):
    """The requests of one method: how long they took, and how they ended."""

    __slots__ = ("outcomes",)

    def __init__(self) -> None:
        super().__init__()
        self.outcomes: dict[str, int] = defaultdict(int)
        """``ok``, ``error`` or ``cancelled``. A tool's ``isError`` is a result: ok."""


class Meter:
    """All counts of one server."""

    def __init__(self) -> None:
        self.requests: dict[str, dict[str, Requests]] = {era: defaultdict(Requests) for era in ("legacy", "modern")}
        """By era and method."""
        self.tools: dict[str, int] = defaultdict(int)
        self.tool_failures: dict[str, int] = defaultdict(int)
        self._tools_version = 0
        self.sessions_created = 0
        self.sessions_ended: dict[str, int] = dict.fromkeys(("deleted", "expired", "evicted", "aborted", "shutdown"), 0)
        """By reason. What expires or is evicted the store counts. Aborted: the client was gone before it got the ID."""
        self.rejected: dict[str, dict[str, int]] = {
            "sessions": dict.fromkeys(("full", "principal", "rate", "store", "memory"), 0),
            **{what: dict.fromkeys(("full", "principal"), 0) for what in ("calls", "streams", "tasks", "handles")},
        }
        """By what, and by reason: all are in use, the principal has its share or comes too often, the store cannot be
        reached, this process is short of memory."""
        self.streams: dict[str, int] = dict.fromkeys(("get", "listen", "post", "resume", "sse"), 0)
        """Open streams by kind."""
        self.store_operations: dict[str, Histogram] = defaultdict(Histogram)
        """By operation."""

    def keep_tools(self, tools: Registry[ToolEntry]) -> None:
        """Drop the counts of tools that are no longer among *tools*: a server may make and remove tools for ever."""
        if self._tools_version != tools.version:
            self._tools_version = tools.version
            for counts in (self.tools, self.tool_failures):
                for name in [name for name in counts if tools.get(name) is None]:
                    del counts[name]

    def request(self, era: str, method: str, outcome: str, seconds: float) -> None:
        """A request was answered, or ended without an answer."""
        requests = self.requests[era][method]
        requests.outcomes[outcome] += 1
        # `observe` without the call: this is done for every request.
        requests.counts[bisect_left(BUCKETS, seconds)] += 1
        requests.total += seconds
