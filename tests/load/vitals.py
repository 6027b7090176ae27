"""What a served mcpd has at one moment, as the kernel, its own metrics and its Redis tell it."""

import http.client
import json
import signal
import time
import urllib.request
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

import psutil
from prometheus_client.parser import text_string_to_metric_families

from tests.harness import Process, modern_request
from tests.stores.redis_server import RedisServer

ASKS: Final = 300


@dataclass(frozen=True)
class Vitals:
    """The sums over all processes that serve."""

    tasks: int
    descriptors: int
    sessions: int
    streams: int
    calls: int
    connections: int
    """To the port that is served, established ones."""
    close_wait: int
    """Connections that the client has closed and the server has not."""
    keys: int
    """In Redis."""
    memory: int
    """Resident bytes."""

    @property
    def held(self) -> dict[str, int]:
        """All but the memory: what must be the same whenever nothing is going on."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "memory"}


class Observed:
    """A served mcpd under observation."""

    def __init__(self, served: Process, inside: int, redis: RedisServer | None) -> None:
        self._served = served
        self._inside = inside
        self._redis = redis

    def vitals(self) -> Vitals:
        while "mcpd_trio_tasks" not in (metrics := self._metrics()):
            time.sleep(0.1)  # no worker has told the others in time
        processes = [psutil.Process(self._served.pid)]
        processes += processes[0].children()
        _, port = self._served.address
        found = [link for each in processes for link in each.net_connections("tcp") if link.laddr.port == port]
        keys = 0
        if self._redis is not None:
            with self._redis.client() as client:
                keys = client.dbsize()
        return Vitals(
            tasks=metrics["mcpd_trio_tasks"],
            descriptors=sum(len(list(Path(f"/proc/{each.pid}/fd").iterdir())) for each in processes),
            sessions=metrics["mcpd_sessions_active"],
            streams=metrics["mcpd_streams_open"],
            calls=metrics["mcpd_calls_in_flight"],
            connections=sum(link.status == psutil.CONN_ESTABLISHED for link in found),
            close_wait=sum(link.status == psutil.CONN_CLOSE_WAIT for link in found),
            keys=keys,
            memory=sum(each.memory_info().rss for each in processes),
        )

    def give_back(self) -> None:
        """Have it collect its garbage, and the C library return what is free: what stays is what is still used."""
        parent = psutil.Process(self._served.pid)
        for each in parent.children() or [parent]:
            each.send_signal(signal.SIGUSR2)  # see tests/load/app.py

    def _metrics(self) -> dict[str, int]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._inside}/metrics", timeout=30) as page:
            text = page.read().decode()
        return {
            family.name: round(sum(sample.value for sample in family.samples))
            for family in text_string_to_metric_families(text)
            if family.type == "gauge"
        }

    def latency(self) -> tuple[float, float]:
        """Seconds that a call takes when nothing else goes on: the median, and what one in a hundred exceeds."""
        request = modern_request("tools/call", {"name": "echo", "arguments": {"text": "quick"}})
        body = json.dumps(request["json"])
        headers = dict(request["headers"]) | {"Content-Type": "application/json", "Accept": "application/json"}
        connection = http.client.HTTPConnection(*self._served.address, timeout=30)
        taken: list[float] = []
        for _ in range(ASKS):
            began = time.perf_counter()
            connection.request("POST", "/mcp", body, headers)
            answer = json.loads(connection.getresponse().read())
            taken.append(time.perf_counter() - began)
            assert answer["result"]["content"][0]["text"] == "quick", answer
        connection.close()
        taken.sort()
        return taken[ASKS // 2], taken[ASKS * 99 // 100]

    def rest(self, within: float, *, as_before: Vitals | None = None) -> Vitals:
        """Wait until nothing goes on, and all is as it was *before* if that is given; or until the time is over."""
        deadline = time.monotonic() + within
        last = self.vitals()
        while time.monotonic() < deadline:
            time.sleep(0.5)
            now = self.vitals()
            idle = now.sessions == now.streams == now.calls == now.connections == now.close_wait == now.keys == 0
            if now.held == last.held and (idle if as_before is None else now.held == as_before.held):
                return now
            last = now
        return last
