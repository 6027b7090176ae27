"""What operators read: the metrics page, as Prometheus does it, and the applications that are looked at."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from mcpd.endpoint.endpoint import Endpoint
from mcpd.metrics import Metrics


class Page:
    """One reading of a metrics page."""

    def __init__(self, text: str) -> None:
        self.labels: dict[str, frozenset[str]] = {}
        """The label names of each sample's name."""
        self._values: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                names = frozenset(sample.labels)
                assert self.labels.setdefault(sample.name, names) == names, sample
                key = (sample.name, frozenset(sample.labels.items()))
                assert key not in self._values, f"twice on the page: {key}"
                self._values[key] = sample.value

    @property
    def series(self) -> frozenset[tuple[str, frozenset[tuple[str, str]]]]:
        """Every series there is."""
        return frozenset(self._values)

    def __call__(self, name: str, **labels: str) -> float:
        """The value of one series; 0 where there is none yet."""
        return self._values.get((name, frozenset(labels.items())), 0.0)


async def read(endpoint: Endpoint) -> Page:
    """The metrics of an endpoint in this process."""
    _, body = await Metrics(endpoint).page()
    return Page(body.decode())
