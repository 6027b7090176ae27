"""Everything that can die does, while clients go on: `python -m tests.chaos --seconds 120 [--seed N] [--lose-data]`.

    clients -> balancer -> three replicas -> proxy -> Redis

Replicas are killed (SIGKILL), stopped (SIGTERM) and started again; Redis is killed and started again, its connections
are reset, or it is silent for a while. Meanwhile clients call, are asked and answer, cancel, resume, and delete. Each
call must end exactly once: with its own answer, or with an error. A session may be lost only where the data was
(``--lose-data``: then Redis comes back with nothing). No key may be without a TTL, and at the end there must be none.

It prints a report, and ends with 1 if any of that did not hold.
"""

import argparse
import contextlib
import json
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import pytest
import trio

from tests.harness import Connection, ConnectionLost, Process, Session, Stream, process
from tests.harness.ends import SocketEnd
from tests.processes import free_port
from tests.replicas.balancer import Balancer, balanced
from tests.replicas.group import APP, STATE_KEYS
from tests.stores.redis_server import Proxy, RedisServer, keys_without_ttl, proxy, server

IDLE: Final = 20.0
CALL_WITHIN: Final = 45.0
"""Seconds after which a call that has not ended counts as hanging: a lost lease takes 12, a lost answer 15."""
PERSISTENT: Final = ("--appendonly", "yes", "--appendfsync", "always")
OPTIONS: Final = ("--session-idle", f"{IDLE:g}s", "--initialization-timeout", "10s", "--drain-timeout", "2s")
_MS: Final = 1000


class Lost(Exception):  # noqa: N818 - what a client is told
    """The session is unknown."""


class Report:
    """What happened."""

    def __init__(self) -> None:
        self.outcomes: dict[str, Counter[str]] = {}
        self.wrong: list[str] = []
        """What must not happen."""
        self.done: Counter[str] = Counter()
        """What was done to replicas and to Redis."""
        self.timeline: list[str] = []
        """The same with its times; it is shown when something is wrong."""
        self.slowest = 0.0
        self.keys = 0
        """The most keys there were at one time."""

    def count(self, action: str, outcome: str) -> None:
        self.outcomes.setdefault(action, Counter())[outcome] += 1

    def lines(self) -> list[str]:
        well = ["answered", "cancelled"]
        columns = [*well, *sorted({o for counter in self.outcomes.values() for o in counter} - set(well))]
        calls = sum(sum(counter.values()) for counter in self.outcomes.values())
        answered = sum(counter[column] for counter in self.outcomes.values() for column in well)
        rows = [["action", *columns]]
        for action, counter in sorted(self.outcomes.items()):
            rows.append([action, *(str(counter[column] or "") for column in columns)])
        return [
            f"calls {calls}, answered {answered}, ended with an error {calls - answered}, wrong {len(self.wrong)}",
            "done: " + ", ".join(f"{what} {number}" for what, number in sorted(self.done.items())),
            f"slowest end of a call {self.slowest:.1f} s; most keys at one time {self.keys}",
            "",
            *(f"| {' | '.join(row)} |" for row in [rows[0], ["---"] * len(rows[0]), *rows[1:]]),
            *(f"WRONG: {each}" for each in self.wrong[:50]),
            *(self.timeline if self.wrong else ()),
        ]


# ----- What is disturbed


class World:
    """The balancer, the replicas behind it, and their Redis behind a proxy."""

    def __init__(self, redis: RedisServer, between: Proxy, balancer: Balancer, *, lose_data: bool) -> None:
        self.redis = redis
        self.between = between
        self.balancer = balancer
        self.lose_data = lose_data
        self.inside: dict[int, int] = {}
        """The port of a replica's debug pages, by its process."""
        self.losses = 0
        """How often Redis has lost what it had."""
        self.replicas: list[tuple[contextlib.AbstractContextManager[Process], Process]] = []
        self.url = f"redis://127.0.0.1:{between.port}/0?event_keep=5"

    async def start_replica(self) -> None:
        inside = free_port()
        looked_into = ("--metrics-port", str(inside), "--debug-endpoints")
        manager = process(APP, "--store", self.url, *OPTIONS, *looked_into, env=STATE_KEYS, code=None)
        try:
            replica = await trio.to_thread.run_sync(manager.__enter__)
        except pytest.fail.Exception:
            # Redis is there, for one thing is disturbed at a time; but a start gives up on it sooner than this
            # program, which is the proxy as well, may be able to answer. Who runs replicas starts them again.
            await trio.sleep(1.0)
            await self.start_replica()
            return
        self.replicas.append((manager, replica))
        self.inside[replica.pid] = inside
        self.balancer.targets.append(replica.address)

    async def end_replica(self, report: Report, number: int, *, index: int = 0) -> None:
        manager, replica = self.replicas.pop(index)
        if number == signal.SIGKILL:
            self.balancer.targets.remove(replica.address)
        replica.signal(signal.Signals(number))
        status = await trio.to_thread.run_sync(replica.wait)
        if number != signal.SIGKILL:
            self.balancer.targets.remove(replica.address)
        if status != (0 if number == signal.SIGTERM else -number):
            report.wrong.append(f"a replica ended with {status} after signal {number}: {replica.stderr[-2000:]}")
        try:
            await trio.to_thread.run_sync(manager.__exit__, None, None, None)
        except AssertionError as exc:  # a traceback in its log
            report.wrong.append(str(exc)[:5000])

    async def restart_redis(self, away: float) -> None:
        if self.lose_data:
            self.losses += 1
        self.redis.kill()
        await trio.sleep(away)
        await trio.to_thread.run_sync(self.redis.start)


async def disturb(world: World, report: Report, seconds: float, chance: random.Random) -> None:
    """One thing after the other, with some time to breathe."""
    deadline = trio.current_time() + seconds

    async def kill() -> None:
        await world.end_replica(report, signal.SIGKILL, index=chance.randrange(len(world.replicas)))
        await trio.sleep(chance.uniform(0, 2))
        await world.start_replica()

    async def stop() -> None:
        await world.end_replica(report, signal.SIGTERM, index=chance.randrange(len(world.replicas)))
        await world.start_replica()

    async def restart() -> None:
        await world.restart_redis(chance.uniform(0, 3))

    async def cut() -> None:
        world.between.cut()
        await trio.lowlevel.checkpoint()

    async def silence() -> None:
        world.between.black_hole = True
        await trio.sleep(chance.uniform(0.3, 4))
        # What was swallowed is gone, so these connections cannot go on: not a byte may follow on them.
        world.between.cut()
        await trio.sleep(0.2)
        world.between.black_hole = False

    things: dict[str, Callable[[], Awaitable[None]]] = {
        "replica killed": kill,
        "replica stopped": stop,
        "Redis restarted": restart,
        "connections to Redis reset": cut,
        "Redis silent": silence,
    }
    while trio.current_time() < deadline:
        await trio.sleep(chance.uniform(0.5, 3.0))
        what = chance.choice(list(things))
        report.done[what] += 1
        report.timeline.append(f"{time.strftime('%H:%M:%S')} {what}")
        await things[what]()
        if "Redis" in what:
            await _ready(world.balancer, len(world.replicas))
    await _ready(world.balancer, 2 * len(world.replicas))


async def _ready(balancer: Balancer, number: int) -> None:
    """Until so many requests in a row, each to the next replica, find it ready."""
    in_a_row = 0
    with trio.fail_after(30):
        while in_a_row < number:
            with contextlib.suppress(ConnectionLost):
                in_a_row = in_a_row + 1 if (await balancer.request("GET", "/ready")).status == 200 else 0
            await trio.sleep(0.05)


# ----- Clients


class Client:
    """One client with one session at a time. It does one thing after the other, and checks what comes of it."""

    def __init__(self, number: int, world: World, report: Report, chance: random.Random) -> None:
        self.number = number
        self.world = world
        self.http = world.balancer
        self.report = report
        self.chance = chance
        self.session: Session | None = None
        self.own = ""
        """What the session's state holds: nobody else's does."""
        self.losses = 0
        self.steps = 0
        self.heard = 0.0
        """When the session was last known to a replica."""

    async def run(self, stopping: trio.Event) -> None:
        actions: dict[str, Callable[[], Awaitable[str]]] = {
            "call": self.call,
            "state": self.state,
            "elicit": self.elicit,
            "cancel": self.cancel,
            "resume": self.resume,
            "delete": self.delete,
            "modern call": self.modern_call,
            "modern rounds": self.modern_rounds,
        }
        weights = [6, 6, 4, 2, 3, 1, 3, 2]
        while not stopping.is_set():
            self.steps += 1
            if self.session is None:
                await self.one("initialize", self.initialize)
            else:
                (name,) = self.chance.choices(list(actions), weights)
                await self.one(name, actions[name])
            await trio.sleep(self.chance.uniform(0, 0.1))

    async def one(self, name: str, action: Callable[[], Awaitable[str]]) -> None:
        began = trio.current_time()
        with trio.move_on_after(CALL_WITHIN) as limit:
            try:
                outcome = await action()
            except ConnectionLost:
                outcome = "connection lost"
            except Lost:
                outcome = "session lost with the data"
                if self.losses == self.world.losses:
                    unseen = trio.current_time() - self.heard
                    self.wrong(f"{name}: the session is unknown, {unseen:.1f} s after it was last known")
                self.session = None
        if limit.cancelled_caught:
            outcome = "hangs"
            self.wrong(f"{name} has not ended after {CALL_WITHIN:g} s")
            self.session = None
        self.report.slowest = max(self.report.slowest, trio.current_time() - began)
        self.report.count(name, outcome)

    def wrong(self, what: str) -> None:
        self.report.wrong.append(f"{time.strftime('%H:%M:%S')} client {self.number}: {what}")

    async def initialize(self) -> str:
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"elicitation": {}},
            "clientInfo": {"name": f"client {self.number}", "version": "1"},
        }
        losses = self.world.losses
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        response = await self.http.request("POST", json=message)
        if response.status != 200:
            return str(response.status)
        session = Session(self.http, response.headers["mcp-session-id"], "2025-11-25", response.result)
        self.losses = losses
        if await self.told(session, "notifications/initialized") != 202:
            return "not initialized"
        own = f"{self.number}.{self.steps}"
        response = await session.call("own", {"value": own})
        found = self.text(response.status, response.messages, own)
        if found == "answered":
            self.session, self.own = session, own
        return found

    async def call(self) -> str:
        text = self.unique()
        # Clients that number all their requests alike are served as well.
        arguments = {"text": text, "seconds": self.chance.choice([0, 0, 0, 0.05, 1.2])}
        response = await self.open_session().call("echo", arguments, id=1)
        return self.text(response.status, response.messages, text)

    async def state(self) -> str:
        response = await self.open_session().call("own", id=1)
        return self.text(response.status, response.messages, self.own)

    async def elicit(self) -> str:
        name = self.unique()
        arguments = {"question": "Who are you?", "timeout": 15}

        async def answer(message: Any) -> None:
            if message.get("method") == "elicitation/create":
                result = {"action": "accept", "content": {"name": name}}
                reply = {"jsonrpc": "2.0", "id": message["id"], "result": result}
                await self.persistently(partial(self.open_session().send, reply))

        return await self.follow("ask", arguments, answer, lambda text: text.endswith(f" accept {name}"))

    async def cancel(self) -> str:
        label = self.unique()

        async def cancel(message: Any) -> None:
            if message.get("method") == "notifications/progress":
                await self.persistently(
                    partial(self.open_session().notify, "notifications/cancelled", {"requestId": label})
                )

        outcome = await self.follow("hold", {"label": label, "seconds": 15}, cancel, label.__eq__, id=label)
        return "not cancelled" if outcome == "answered" else outcome

    async def resume(self) -> str:
        word = self.unique()

        async def hear(message: Any) -> None:
            if message.get("method") == "notifications/progress" and self.chance.random() < 0.2:
                raise ConnectionLost("this client goes away")

        return await self.follow("spell", {"word": word, "pause": 0.1}, hear, word.__eq__)

    async def delete(self) -> str:
        # Used no more, whatever the answer: a DELETE without a clear one may have ended it all the same.
        session, self.session = self.open_session(), None
        response = await session.delete()
        if response.status == 404:
            raise Lost
        if response.status != 204:
            return str(response.status)
        response = await session.post("ping", id=1)
        if response.status == 200:
            self.wrong("delete: the session lives on")
        return "answered" if response.status == 404 else str(response.status)

    async def modern_call(self) -> str:
        text = self.unique()
        response = await self.http.call("echo", {"text": text})
        return self.text(response.status, response.messages, text)

    async def modern_rounds(self) -> str:
        params: dict[str, Any] = {"name": "ask_twice", "arguments": {}}
        names: list[str] = []
        for key in ("first", "last"):
            response = await self.http.modern("tools/call", params, capabilities={"elicitation": {}})
            if response.status != 200:
                return str(response.status)
            if "result" not in response.answer:
                return self.error(response.answer)
            told = response.result
            if list(told.get("inputRequests", ())) != [key]:
                self.wrong(f"modern rounds: {told}")
                return "wrong"
            names.append(self.unique())
            params["inputResponses"] = {key: {"action": "accept", "content": {"name": names[-1]}}}
            if "requestState" in told:
                params["requestState"] = told["requestState"]
        response = await self.http.modern("tools/call", params, capabilities={"elicitation": {}})
        return self.text(response.status, response.messages, " ".join(names))

    # -----

    def open_session(self) -> Session:
        assert self.session is not None
        return self.session

    def unique(self) -> str:
        return f"{self.number}-{self.steps}-{self.chance.getrandbits(32):08x}"

    def text(self, status: int, messages: list[Any], expected: str | Callable[[str], bool]) -> str:
        """What a response is; it must be one, and hold our own text or an error."""
        if status == 404:
            raise Lost
        if status != 200:
            return str(status)
        self.heard = trio.current_time()
        responses = [message for message in messages if "method" not in message]
        if len(responses) != 1:
            self.wrong(f"{len(responses)} responses: {messages}")
            return "wrong"
        (response,) = responses
        if "error" in response:
            return self.error(response)
        text = response["result"]["content"][0]["text"]
        if response["result"].get("isError"):
            return f"isError: {text[:40]}"
        if not (text == expected if isinstance(expected, str) else expected(text)):
            self.wrong(f"a foreign answer: {text!r}")
            return "wrong"
        return "answered"

    def error(self, response: Any) -> str:
        return str(response["error"]["message"])[:40]

    async def told(self, session: Session, method: str) -> int:
        return (await session.notify(method)).status

    async def persistently(self, send: Callable[[], Awaitable[Any]]) -> None:
        """What a client sends without a call of its own it sends until somebody has taken it."""
        while True:
            with contextlib.suppress(ConnectionLost):
                response = await send()
                if response.status == 202:
                    return
                if response.status == 404:
                    raise Lost
            await trio.sleep(0.2)

    async def follow(
        self,
        tool: str,
        arguments: dict[str, Any],
        hear: Callable[[Any], Awaitable[None]],
        expected: Callable[[str], bool],
        *,
        id: str | None = None,
    ) -> str:
        """Call, read the stream, and resume it wherever it was cut, until the response is there."""
        session = self.open_session()
        request_id = id or self.unique()
        responses: list[Any] = []
        seen: list[str] = []
        last_id: str | None = None
        opening = session.open_call(tool, arguments, progress=request_id, id=request_id)
        while True:
            status = 0
            try:
                async with opening as stream:
                    status = stream.status
                    if status == 200 and stream.headers["content-type"] == "application/json":
                        return self.text(200, [json.loads(await _whole(stream))], expected)
                    if status == 200:
                        last_id = stream.last_id or last_id
                        ended = await self.read(stream, request_id, hear, responses, seen)
                        last_id = stream.last_id or last_id
                        if ended:
                            return self.text(200, responses, expected)
                        if last_id is None:
                            # No id, no response, and a clean end: a cancelled call on a stream that was not logged.
                            return "ended without a response"
                        if tool == "hold" and not responses:
                            return "cancelled"  # then there is no response
            except ConnectionLost:
                last_id = (stream.last_id if status == 200 else None) or last_id
                if last_id is None:
                    raise
            if status == 404:
                raise Lost
            if status == 400:
                return "its events are gone"
            if last_id is None:
                return str(status)
            await trio.sleep(0.1)
            opening = session.get(last_id)

    async def read(
        self,
        stream: Stream,
        request_id: str,
        hear: Callable[[Any], Awaitable[None]],
        responses: list[Any],
        seen: list[str],
    ) -> bool:
        while (event := await stream.event()) is not None:
            # What was sent while Redis was away has no id, and may come again; what has one comes once, in its order.
            if event.id is not None:
                number = int(event.id.rpartition(".")[2])
                if seen and number <= int(seen[-1].rpartition(".")[2]):
                    self.wrong(f"event {event.id} came after {seen[-1]}")
                seen.append(event.id)
            if not event.data:
                continue
            message = event.json
            if "method" in message:
                await hear(message)
            else:
                if message["id"] != request_id:
                    self.wrong(f"a foreign response: {message}")
                responses.append(message)
        return bool(responses)


async def _whole(stream: Stream) -> bytes:
    pieces: list[bytes] = []
    while (piece := await stream.connection.piece()) is not None:
        pieces.append(piece)
    return b"".join(pieces)


# ----- The run


async def watch(world: World, report: Report) -> None:
    """Look at all keys, again and again: each must have a TTL at every moment."""

    def look() -> tuple[int, list[bytes]]:
        with contextlib.suppress(Exception), world.redis.client() as client:
            return client.dbsize(), keys_without_ttl(client)
        return 0, []  # it is away

    while True:
        keys, for_ever = await trio.to_thread.run_sync(look)
        report.keys = max(report.keys, keys)
        for key in for_ever:
            report.wrong.append(f"no TTL: {key!r}")
        await trio.sleep(0.3)


@asynccontextmanager
async def worlds(*, lose_data: bool) -> AsyncGenerator[World]:
    with server(*(() if lose_data else PERSISTENT)) as redis:
        async with proxy(redis.port) as between, balanced() as balancer:
            world = World(redis, between, balancer, lose_data=lose_data)
            for _ in range(3):
                await world.start_replica()
            yield world


async def chaos(seconds: float, seed: int, *, clients: int = 10, lose_data: bool = False) -> Report:
    """Disturb for so long, then let everything come to rest."""
    report = Report()
    chance = random.Random(seed)
    async with worlds(lose_data=lose_data) as world, trio.open_nursery() as watching:
        watching.start_soon(watch, world, report)
        stopping = trio.Event()
        everybody = [Client(n, world, report, random.Random(f"{seed} {n}")) for n in range(clients)]
        async with trio.open_nursery() as nursery:
            for client in everybody:
                nursery.start_soon(client.run, stopping)
            await disturb(world, report, seconds, chance)
            stopping.set()
        # At peace now: every session is there, and is its client's own. One half leaves politely.
        for client in everybody:
            if client.session is not None:
                await client.one("state, at the end", client.state)
            if client.session is not None and client.number % 2:
                await client.one("delete, at the end", client.delete)
        for outcome in (report.outcomes.get(name, {}) for name in ("state, at the end", "delete, at the end")):
            for what in set(outcome) - {"answered", "session lost with the data"}:
                report.wrong.append(f"at the end, when all was well: {what}")
        await _come_to_rest(world, report)
        while world.replicas:
            await world.end_replica(report, signal.SIGTERM)
        watching.cancel_scope.cancel()
    return report


async def _come_to_rest(world: World, report: Report) -> None:
    """Sessions expire, and then there is not a single key."""
    with world.redis.client() as redis, trio.move_on_after(IDLE + 25) as limit:
        while redis.dbsize():  # noqa: ASYNC110 - somebody else's process
            await trio.sleep(0.2)
    if limit.cancelled_caught:
        with world.redis.client() as redis:
            left = {key: redis.pttl(key) for key in redis.scan_iter()}
        report.wrong.append(f"{len(left)} keys are left: {dict(list(left.items())[:20])}")
        for _, replica in world.replicas:
            async with Connection(SocketEnd.connect(("127.0.0.1", world.inside[replica.pid]))) as connection:
                tasks = (await connection.request("GET", "/debug/tasks")).body.decode()
                report.wrong.append(f"what replica {replica.pid} is at:\n{tasks}")


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.chaos", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--lose-data", action="store_true", help="Redis keeps nothing over a restart")
    options = parser.parse_args()
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    print(f"seed {seed}, {options.seconds:g} s, {options.clients} clients, lose_data={options.lose_data}", flush=True)
    run = partial(chaos, options.seconds, seed, clients=options.clients, lose_data=options.lose_data)
    report = trio.run(run)
    print("\n".join(report.lines()))
    sys.exit(1 if report.wrong else 0)


if __name__ == "__main__":
    main()
