"""The metrics page: a server's counts in Prometheus's text format."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

import trio
from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from mcpd.errors import StoreError
from mcpd.server.meter import BUCKETS, Histogram

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.metrics_core import Metric

    from mcpd.endpoint.endpoint import Endpoint

CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"
_LAG_EVERY: Final = 0.5


class Metrics:
    """What there is to know of a running endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Args: *endpoint*: whose counts."""
        self._endpoint = endpoint
        self._counts = _Counts(endpoint)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self._counts)
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    async def page(self) -> tuple[bytes, bytes]:
        """The content type and the page as of now."""
        # The store is asked here, for a collector cannot wait.
        counts = self._counts
        try:
            with trio.fail_after(1.0):
                await self._endpoint.store.ping()  # as readiness does, so both say the same
                counts.sessions = await self._endpoint.sessions.records.count()
            counts.store_up = 1
        except (StoreError, trio.TooSlowError):
            counts.store_up = 0
        counts.tasks = trio.lowlevel.current_statistics().tasks_living
        return CONTENT_TYPE, generate_latest(self._registry)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Measure how late the loop is, until cancelled."""
        task_status.started()
        while True:
            due = trio.current_time() + _LAG_EVERY
            await trio.sleep_until(due)
            late = trio.current_time() - due
            # The worst of the last while, not the last: a stall between two scrapes must be seen.
            self._counts.lag = max(late, self._counts.lag * 0.9)


class _Counts(Collector):
    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.sessions = 0
        self.store_up = 1
        self.tasks = 0
        self.lag = 0.0

    def collect(self) -> Iterable[Metric]:
        endpoint = self._endpoint
        meter = endpoint.core.meter
        meter.keep_tools(endpoint.core.server.tools)
        yield _gauge("mcpd_sessions_active", "Sessions that are alive, in the whole store.", self.sessions)
        yield _gauge("mcpd_sessions_max", "How many sessions there may be.", endpoint.settings.max_sessions)
        yield _counter("mcpd_sessions_created", "Sessions created by this process.", meter.sessions_created)
        dropped = endpoint.sessions.records.dropped
        ended = meter.sessions_ended | {"expired": dropped.expired, "evicted": dropped.evicted}
        yield _counters("mcpd_sessions_ended", "Sessions ended, by reason.", "reason", ended)
        for what, reasons in meter.rejected.items():
            yield _counters(f"mcpd_{what}_rejected", f"{what.capitalize()} refused, by reason.", "reason", reasons)
        streams = GaugeMetricFamily("mcpd_streams_open", "Open SSE streams, by kind.", labels=["kind"])
        for kind, number in meter.streams.items():
            streams.add_metric([kind], number)
        yield streams
        yield _gauge("mcpd_calls_in_flight", "Requests being answered.", len(endpoint.calls))
        requests = CounterMetricFamily(
            "mcpd_requests", "Requests answered, by era, method and outcome.", labels=["era", "method", "outcome"]
        )
        for era, methods in meter.requests.items():
            for method, counted in methods.items():
                for outcome, number in counted.outcomes.items():
                    requests.add_metric([era, method, outcome], number)
        yield requests
        durations = HistogramMetricFamily(
            "mcpd_request_duration_seconds", "Time from a request to its answer.", labels=["era", "method"]
        )
        for era, methods in meter.requests.items():
            for method, counted in methods.items():
                durations.add_metric([era, method], list(_buckets(counted)), sum_value=counted.total)
        yield durations
        yield _counters("mcpd_tool_invocations", "Calls of tools.", "tool", meter.tools)
        yield _counters("mcpd_tool_invocation_failures", "Calls of tools that failed.", "tool", meter.tool_failures)
        operations = HistogramMetricFamily(
            "mcpd_store_operation_duration_seconds", "Time of store operations.", labels=["store", "operation"]
        )
        for operation, histogram in meter.store_operations.items():
            operations.add_metric(
                [endpoint.store.name, operation], list(_buckets(histogram)), sum_value=histogram.total
            )
        yield operations
        yield _gauge("mcpd_store_up", "Whether the store answers.", self.store_up)
        yield _counter(
            "mcpd_events_dropped", "Events dropped from the log before their time.", endpoint.store.events.dropped
        )
        yield _gauge("mcpd_trio_tasks", "Tasks alive in the event loop.", self.tasks)
        yield _gauge("mcpd_loop_lag_seconds", "How late the event loop was lately.", self.lag)
        build = GaugeMetricFamily("mcpd_build_info", "What is running.", labels=["version", "python", "trio"])
        build.add_metric([version("trio-mcpd"), platform.python_version(), trio.__version__], 1)
        yield build


def _gauge(name: str, documentation: str, value: float) -> Metric:
    return GaugeMetricFamily(name, documentation, value=value)


def _counter(name: str, documentation: str, value: float) -> Metric:
    return CounterMetricFamily(name, documentation, value=value)


def _counters(name: str, documentation: str, label: str, values: dict[str, int]) -> Metric:
    family = CounterMetricFamily(name, documentation, labels=[label])
    for key, number in values.items():
        family.add_metric([key], number)
    return family


def _buckets(histogram: Histogram) -> Iterator[tuple[str, float]]:
    total = 0
    for bound, number in zip([*map(str, BUCKETS), "+Inf"], histogram.counts, strict=True):
        total += number
        yield bound, total
