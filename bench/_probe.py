"""How much memory the server holds now: its own metrics if it has them, else what the kernel says of its process."""

from __future__ import annotations

import http.client
import re
import time
import urllib.error
import urllib.request
from dataclasses import dataclass

import psutil

from _target import BenchError, Target, loopback_port

HEAP = "go_memstats_heap_alloc_bytes"
RESIDENT = "process_resident_memory_bytes"
SESSIONS = "mcpd_sessions_active"

SAMPLES = 20
"""Readings for one figure. The least of them is near what survives a garbage collection, as in the bug report."""
PAUSE_SECONDS = 0.01
TIMEOUT_SECONDS = 10.0
METRICS_LIMIT = 4 << 20
_LABELS = r'\{(?:"(?:\\.|[^"\\])*"|[^"}])*\}'  # a label's value may hold a brace
_SAMPLE = re.compile(rf"^(?P<name>[a-zA-Z_:][\w:]*)(?:{_LABELS})?[ \t]+(?P<value>[-+.\w]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Reading:
    """What the server held at one moment: `live` bytes by the chosen measure, RSS, live sessions, open connections."""

    live: int
    rss: int | None
    sessions: int | None
    connections: int | None


class Probe:
    """Reads one server's memory, always by the measure it settled on at the start (`measure`, for the report)."""

    def __init__(self, target: Target, *, metrics: str | None = None) -> None:
        """Choose the measure: heap from the metrics, else RSS from the metrics, else RSS of the process.

        Without `metrics` the route `/metrics` of the server itself is tried. Raises `BenchError` when there is
        neither a usable metric nor a process.
        """
        self._metrics: str | None = metrics or f"{target.origin}/metrics"
        loopback_port(self._metrics)
        found = _scrape(self._metrics, required=metrics is not None)
        self._has_sessions = SESSIONS in found
        self._process = None if target.pid is None else psutil.Process(target.pid)
        self._name = next((name for name in (HEAP, RESIDENT) if name in found), None)
        if self._name is not None:
            self.measure = self._name
        elif self._process is not None:
            self.measure = "RSS of the process"
        else:
            raise BenchError(
                f"no way to see the memory of {target.url}: {self._metrics} has neither {HEAP} nor {RESIDENT}, "
                "and no process of this user listens there; give --metrics or --pid"
            )
        if self._name is None and not self._has_sessions:
            self._metrics = None

    def read(self) -> Reading:
        """Take twenty samples (at least 0.2 s) and give the least memory seen, with the last counts."""
        live: list[int] = []
        rss: list[int] = []
        sessions: int | None = None
        for _ in range(SAMPLES):
            found = {} if self._metrics is None else _scrape(self._metrics, required=True)
            if self._has_sessions:
                sessions = int(_take(found, SESSIONS))
            if self._process is not None:
                rss.append(self._resident())
            live.append(rss[-1] if self._name is None else int(_take(found, self._name)))
            time.sleep(PAUSE_SECONDS)
        return Reading(live=min(live), rss=min(rss, default=None), sessions=sessions, connections=self._connections())

    def _resident(self) -> int:
        if self._process is None or not self._process.is_running():
            raise BenchError("the server's process has ended during the measurement")
        return int(self._process.memory_info().rss)

    def _connections(self) -> int | None:
        """Count the TCP connections of the process, also those its clients have closed already (CLOSE_WAIT)."""
        if self._process is None:
            return None
        found = self._process.net_connections(kind="tcp")
        return sum(connection.status != psutil.CONN_LISTEN for connection in found)


def _take(found: dict[str, float], name: str) -> float:
    if name not in found:
        raise BenchError(f"the metric {name} was there at the start and is gone now; was the server restarted?")
    return found[name]


def _scrape(url: str, *, required: bool) -> dict[str, float]:
    """Read a Prometheus text page, each name summed over its labels; no page is an empty one unless `required`."""
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer:  # loopback http, checked
            text = answer.read(METRICS_LIMIT).decode("utf-8", "replace")
    except (OSError, urllib.error.URLError, http.client.HTTPException) as exc:
        if not required:
            return {}
        raise BenchError(f"cannot read the metrics at {url}: {exc}") from exc
    found: dict[str, float] = {}
    for sample in _SAMPLE.finditer(text):
        try:
            found[sample["name"]] = found.get(sample["name"], 0.0) + float(sample["value"])
        except ValueError:
            continue
    return found
