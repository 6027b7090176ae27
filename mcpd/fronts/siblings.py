"""The metrics of all workers as one page: whichever is asked asks the others, over sockets in a folder of theirs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from mcpd.errors import INTERNAL_ERROR, ProtocolError
from mcpd.metrics import CONTENT_TYPE

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

logger: Final = logging.getLogger("mcpd.workers")
# What is the same for all, or means nothing as a sum.
_LARGEST: Final = frozenset(
    {"mcpd_sessions_active", "mcpd_sessions_max", "mcpd_build_info", "mcpd_loop_lag_seconds", "process_max_fds"}
)
_SMALLEST: Final = frozenset({"mcpd_store_up", "process_start_time_seconds"})
_PATIENCE: Final = 5.0
"""Seconds that a worker may take; Prometheus gives up after ten."""
_REQUEST: Final = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


async def merged(folder: Path) -> tuple[bytes, bytes]:
    """The content type and the page of all workers with sockets in *folder*; one that is just ending is left out.

    Raises:
      ProtocolError: 503, none of them has answered in time: an empty page would say that all counts are gone.
    """
    pages: list[str] = []

    async def ask(socket: trio.Path) -> None:
        try:
            with trio.fail_after(_PATIENCE):
                pages.append(await _page(str(socket)))
        except (OSError, trio.TooSlowError, trio.BrokenResourceError) as exc:
            logger.debug("A worker could not be asked for its metrics: %s", exc)

    async with trio.open_nursery() as nursery:
        for socket in sorted(await trio.Path(folder).glob("*.sock")):
            nursery.start_soon(ask, socket)
    if not pages:
        raise ProtocolError(INTERNAL_ERROR, "No worker has told its metrics in time; ask again", http_status=503)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Merged(pages))
    return CONTENT_TYPE, generate_latest(registry)


async def _page(path: str) -> str:
    async with await trio.open_unix_socket(path) as stream:
        await stream.send_all(_REQUEST)
        received = bytearray()
        async for data in stream:
            received += data
    return received.partition(b"\r\n\r\n")[2].decode()


class _Merged(Collector):
    def __init__(self, pages: Iterable[str]) -> None:
        self._pages = pages

    def collect(self) -> Iterable[Metric]:
        families: dict[str, Metric] = {}
        values: dict[tuple[str, str, tuple[tuple[str, str], ...]], float] = {}
        for page in self._pages:
            for family in text_string_to_metric_families(page):
                families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                for sample in family.samples:
                    key = (family.name, sample.name, tuple(sorted(sample.labels.items())))
                    values[key] = _joined(family.name, values.get(key), sample.value)
        for (name, sample_name, labels), value in values.items():
            families[name].add_sample(sample_name, dict(labels), value)
        return families.values()


def _joined(name: str, known: float | None, value: float) -> float:
    if known is None:
        return value
    if name in _LARGEST:
        return max(known, value)
    return min(known, value) if name in _SMALLEST else known + value
