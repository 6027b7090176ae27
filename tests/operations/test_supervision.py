"""A background task that fails ends the server, with a word in the log and an exit status: it must not limp on."""

import json
import socket
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import trio

import mcpd
from mcpd import Server
from mcpd.fronts import workers
from tests.harness import ConnectionLost, process
from tests.harness.tasks import InjectedError, fail, tasks_in
from tests.stores.redis_server import RedisServer, server, until

WITHIN = 10.0
APP = "tests.operations.failing_app:server"


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with server() as started:
        yield started


async def _serve(nursery: trio.Nursery, **options: Any) -> dict[str, trio.lowlevel.Task]:
    """Start a server that has all its background tasks; they, by their paths."""
    serve = partial(mcpd.serve, Server("s", version="1"), port=0, memory_limit=1 << 40, stop=trio.sleep_forever)
    await nursery.start(partial(serve, **options))
    await trio.testing.wait_all_tasks_blocked()
    return dict(tasks_in([nursery]))


async def _outcome(path: str, **options: Any) -> BaseException | None:
    """What becomes of a server whose task at that path fails."""
    failure: BaseException | None = None
    try:
        with trio.move_on_after(WITHIN):
            async with trio.open_nursery() as nursery:
                fail((await _serve(nursery, **options))[path])
    except BaseExceptionGroup as group:
        failure = group
    return failure


@pytest.mark.parametrize(
    ("front", "shared", "known"),
    [
        (
            "direct",
            True,
            {
                *("Endpoint._watch_quiet", "Heartbeats.run", "Leases.run", "Metrics.run", "Sessions.run"),
                *("Sessions._renew_live", "Answers.run", "MemoryGuard.run", "Subscriptions.run", "Tasks.run"),
                *("Subscriptions._publish", "TimedStore.run", "Link.run", "Link._watch", "Link._read", "Link._write"),
                *("Link._keep_alive", "Watcher.run", "DirectFront._accept", "_serve_pages"),
            },
        ),
        ("hypercorn", False, {"TimedStore.run", "serve_listeners"}),
    ],
    ids=["direct, Redis", "hypercorn, memory"],
)
async def test_no_background_task_fails_alone(redis: RedisServer, front: str, shared: bool, known: set[str]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        inside = probe.getsockname()[1]
    options: dict[str, Any] = {"front": front, "metrics_port": inside}
    if shared:
        options |= {"store": redis.url(), "state_keys": ("shared-by-nobody-else",)}
    async with trio.open_nursery() as nursery:
        paths = list(await _serve(nursery, **options))
        nursery.cancel_scope.cancel()
    assert {name for name in known if not any(path.endswith(name) for path in paths)} == set()
    assert len(paths) > len(known)
    limping = []
    for path in paths:
        outcome = await _outcome(path, **options)
        if not isinstance(outcome, BaseExceptionGroup) or outcome.subgroup(InjectedError) is None:
            limping.append((path, outcome))
    assert limping == []


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_the_process_says_so_and_exits_with_a_status(front: str, log_format: str) -> None:
    options = ("--front", front, "--log-format", log_format)
    with process(APP, *options, code=1, allow_traceback=True) as served:
        with pytest.raises(ConnectionLost):
            trio.run(partial(served.call, "break_down", {"name": "Heartbeats.run"}))
        assert served.wait() == 1
        assert "InjectedError" in served.stderr
        last = [line for line in served.stderr.splitlines() if "has failed" in line]
        assert len(last) == 1
        if log_format == "json":
            assert json.loads(last[0])["level"] == "critical"
        else:
            assert "CRITICAL" in last[0]


async def test_a_worker_that_fails_is_replaced(redis: RedisServer) -> None:
    options = ("--store", redis.url(), "--workers", "2")
    with process(APP, *options, allow_traceback=True) as served:
        with pytest.raises(ConnectionLost):
            await served.call("break_down", {"name": "Heartbeats.run"})
        await until(lambda: "A worker ended with status 1; another one starts" in served.stderr, within=WITHIN)
        assert (await served.modern("tools/list")).status == 200


async def test_a_parent_that_cannot_start_its_workers_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers.sys, "executable", "/nowhere/python")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        parent = workers.Workers(2, ["serve"], {"MCPD_LISTENER": listener})
        with trio.fail_after(WITHIN), pytest.raises(BaseExceptionGroup) as raised:
            await parent.run(lambda: None)
    assert raised.value.subgroup(FileNotFoundError) is not None
