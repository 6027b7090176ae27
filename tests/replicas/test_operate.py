"""``mcpd sessions``: what an operator sees in a store that servers are using."""

import json
import os
import re
import subprocess
import sys

import pytest
import trio

from tests.harness import Process
from tests.replicas.group import at, replicas
from tests.stores.redis_server import RedisServer, calls, until

NAME = re.compile(r"^([A-Za-z0-9+/]{22})  ", re.MULTILINE)


async def sessions(command: str, *arguments: str, url: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
    done = await trio.run_process(
        [sys.executable, "-m", "mcpd", "sessions", command, *arguments],
        env=os.environ | {"MCPD_STORE": url},
        capture_stdout=True,
        capture_stderr=True,
        check=False,
    )
    out, err = done.stdout.decode(), done.stderr.decode()
    assert done.returncode == code, (out, err)
    return subprocess.CompletedProcess(done.args, done.returncode, out, err)


async def test_sessions_are_seen_and_nothing_secret_is(redis_server: RedisServer) -> None:
    url = redis_server.url()
    with replicas(2, url) as (a, b):
        assert (await sessions("count", url=url)).stdout == "0\n"
        opened = [await a.initialize(version) for version in ("2025-03-26", "2025-11-25")]
        await opened[1].call("own", {"value": "a secret of the user"})
        await opened[1].post("resources/subscribe", {"uri": "replica://secret"})
        # The name that a client gives itself may hold anything.
        evil = {"name": "\x1b[2J\u202eevil\n", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": evil}
        await b.request("POST", json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
        assert (await sessions("count", url=url)).stdout == "3\n"
        listed = (await sessions("list", url=url)).stdout
        names = NAME.findall(listed)
        assert len(names) == 3
        assert re.search(r"2025-03-26 +29m5\ds +\d+  harness 1$", listed, re.MULTILINE), listed
        assert "?[2J?evil? 1" in listed
        shown = [(await sessions("show", name, url=url)).stdout for name in names]
        (own,) = [text for text in shown if re.search(r"^state values +1$", text, re.MULTILINE)]
        assert re.search(r"^revision +2025-11-25$", own, re.MULTILINE)
        assert re.search(r"^subscriptions +1$", own, re.MULTILINE)
        assert re.search(r"^initialized +yes$", own, re.MULTILINE)
        lines = (await sessions("list", "--json", url=url)).stdout.splitlines()
        assert sorted(json.loads(line)["name"] for line in lines) == sorted(names)
        said = "".join([listed, *shown, *lines])
        assert "secret" not in said
        assert not any(session.id in said for session in opened)


async def test_to_look_is_not_to_use(redis_server: RedisServer) -> None:
    url = redis_server.url()
    with replicas(1, url, "--session-idle", "6s") as (a,):
        session = await a.initialize()
        (name,) = NAME.findall((await sessions("list", url=url)).stdout)
        with trio.fail_after(30):
            while (await _try("show", name, url)) == 0:
                pass
        assert (await session.post("ping")).status == 404


async def _try(command: str, name: str, url: str) -> int:
    words = [sys.executable, "-m", "mcpd", "sessions", command, name, "--store", url]
    return (await trio.run_process(words, capture_stdout=True, capture_stderr=True, check=False)).returncode


async def test_end_ends_streams_and_calls_on_every_replica(redis_server: RedisServer) -> None:
    url = redis_server.url()
    with replicas(2, url) as (a, b):
        other = await a.initialize()
        (kept,) = NAME.findall((await sessions("list", url=url)).stdout)
        session = await a.initialize()
        (name,) = set(NAME.findall((await sessions("list", url=url)).stdout)) - {kept}
        async with (
            session.get() as at_a,
            at(session, b).open_call("hold", {"label": "it"}, id=9, progress=1) as call,
            at(other, b).get() as stays,
        ):
            await at_a.event()
            await stays.event()
            await call.message()
            ended = await sessions("end", name, url=url)
            assert ended.stdout == f"{name}  ended\n"
            assert await at_a.rest(within=1) == []
            (last,) = await call.rest(within=1)
            assert (last["id"], last["error"]["message"]) == (9, "The session was terminated")
            assert not stays.ended
            for replica in (a, b):
                assert (await at(session, replica).post("ping")).status == 404
                assert (await at(other, replica).post("ping")).status == 200
        await until(lambda: "cancelled it" in b.stderr)
        with redis_server.client() as client:
            assert not [key for key in client.scan_iter() if name.encode() in key]
        again = await sessions("end", name, "no-such-name", url=url, code=1)
        assert [line.split("  ")[1] for line in again.stdout.splitlines()] == ["unknown: it has ended or expired"] * 2
        assert "There is no session" in (await sessions("show", name, url=url, code=2)).stderr


async def test_pages_hold_all_and_redis_is_never_scanned(redis_server: RedisServer) -> None:
    url = redis_server.url()
    with replicas(1, url, "--initialization-timeout", "20m") as (a,), redis_server.client() as client:
        async with trio.open_nursery() as nursery:

            async def one() -> None:
                async with a.keep_alive() as connection:
                    for _ in range(10):
                        await a.initialize(on=connection)

            for _ in range(25):
                nursery.start_soon(one)
        scans = calls(client, "scan") + calls(client, "keys")
        names: list[str] = []
        cursor: tuple[str, ...] = ()
        pages = 0
        while True:
            page = await sessions("list", "--limit", "110", *cursor, url=url)
            names += NAME.findall(page.stdout)
            pages += 1
            following = re.search(r"--cursor (\S+)$", page.stderr, re.MULTILINE)
            if following is None:
                break
            cursor = ("--cursor", following[1])
        assert (pages, len(names), len(set(names))) == (3, 250, 250)
        assert calls(client, "scan") + calls(client, "keys") == scans


@pytest.mark.parametrize(
    ("store", "arguments", "said"),
    [
        ("memory", ["count"], "mcpd: The store memory cannot be looked into from here: its sessions are inside"),
        ("redis://127.0.0.1:1/", ["count"], "mcpd: Cannot connect to redis://127.0.0.1:1/"),
        ("{url}", ["list", "--cursor", "x"], "mcpd: --cursor: 'x' is no cursor of this store"),
        ("{url}", ["show", "\x1b[2J"], "mcpd: There is no session ?[2J;"),
    ],
)
async def test_what_cannot_be_done_is_one_clear_line(
    store: str, arguments: list[str], said: str, redis_server: RedisServer
) -> None:
    done = await sessions(*arguments, url=store.format(url=redis_server.url()), code=2)
    assert done.stderr.startswith(said)
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)


async def test_redis_alone_is_the_one_that_the_environment_names(
    three: list[Process], redis_server: RedisServer
) -> None:
    url = redis_server.url()
    environment = os.environ | {"MCPD_REDIS_URL": url}
    environment.pop("MCPD_STORE", None)
    with replicas(1, "redis", env={"MCPD_REDIS_URL": url}) as (a,):
        await a.initialize()
        command = [sys.executable, "-m", "mcpd", "sessions", "count"]
        done = await trio.run_process([*command, "--store", "redis"], env=environment, capture_stdout=True)
        assert done.stdout == b"1\n"
        done = await trio.run_process(
            [*command, "--store", "redis", "--redis-url", redis_server.url()], capture_stdout=True
        )
        assert done.stdout == b"0\n"
