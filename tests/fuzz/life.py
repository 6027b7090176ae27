"""A legacy session's whole life on two replicas, beside a model of it, which says what has to come of each step.

A program is a list of steps; Hypothesis makes and shrinks it. Steps name sessions and calls by number, modulo those
that there are, so any part of a program is one as well.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import trio
from hypothesis import strategies

from mcpd import Context, Server
from tests.harness import ConnectionLost, Http, Session, Stream, call_params, serving

IDLE: Final = 100.0
UNINITIALIZED: Final = 40.0
SETTINGS: Final[dict[str, Any]] = {
    "session_idle": IDLE,
    "initialization_timeout": UNINITIALIZED,
    "state_keys": ("shared by all replicas of a test",),
}
PAUSES: Final = (35.0, 75.0, 110.0)
"""Seconds that pass in a step. No sum of them comes near a time-out."""
KEPT: Final = 250.0
"""Seconds for which a stream that has ended can certainly be resumed."""
WITHIN: Final = 20.0
REVISIONS: Final = ("2025-11-25", "2025-06-18", "2024-11-05")
INVENTED: Final = ("0.0", "x.1", "", ".", "0.", "..", "0.-1", "99999", "A" * 12 + ".1", "0.\u00b2", "0.1.1", "*.0")
IDS: Final = (1, "a")


class Step(NamedTuple):
    """What is done; which of them each number is for, `World.do` says."""

    what: str
    which: int
    replica: int
    more: int


_FIRST: Final = [Step("initialize", 0, 0, 0), Step("initialized", 0, 0, 0), Step("initialize", 0, 1, 1)]
"""Without a session there is little to do."""


def programs(*, steps: int) -> strategies.SearchStrategy[list[Step]]:
    """Programs of up to so many steps."""
    weights = {
        "initialize": 3,
        "hold": 4,
        "release": 3,
        "resume": 3,
        "cut": 2,
        "listen": 2,
        "update": 2,
        "subscribe": 2,
    }
    names = [name for name in World.STEPS for _ in range(weights.get(name, 1))]
    number = strategies.integers(0, 7)
    step = strategies.builds(Step, strategies.sampled_from(names), number, strategies.integers(0, 1), number)
    # In pieces, for Hypothesis makes mostly short lists.
    pieces = strategies.lists(strategies.lists(step, min_size=1, max_size=10), min_size=1, max_size=steps // 5)
    return pieces.map(lambda lists: [*_FIRST, *(each for piece in lists for each in piece)][:steps])


# ----- The model


@dataclass(eq=False)
class Stay:
    """A session, as the model knows it."""

    id: str
    revision: str
    ends: float
    """When it expires, unless it is in use."""
    initialized: bool = False
    over: bool = False
    own: str = ""
    subscribed: set[str] = field(default_factory=set)
    calls: list[Held] = field(default_factory=list)
    listener: Follower | None = None
    """The standalone stream, if it is open."""
    resuming: list[Follower] = field(default_factory=list)

    @property
    def resumable(self) -> bool:
        return self.revision != "2024-11-05"


@dataclass(eq=False)
class Held:
    """A call that ends when it is told to."""

    stay: Stay
    id: Any
    label: str
    replica: int
    follower: Follower | None = None
    """Who reads the response; None once it was cut."""
    event_ids: list[str] = field(default_factory=list)
    outcome: str = ""
    """How it has ended: released, cancelled or deleted."""
    ended: float = 0.0

    def answers(self, message: Any) -> bool:
        """Whether that is its one response."""
        if message["id"] != self.id or type(message["id"]) is not type(self.id):
            return False
        if self.outcome == "released":
            return bool(message["result"]["content"][0]["text"] == self.label)
        return self.outcome == "deleted" and message["error"]["message"] == "The session was terminated"


class Follower:
    """Who reads a stream to its end, or until it is cut."""

    def __init__(self, replica: int) -> None:
        self.replica = replica
        self.messages: list[Any] = []
        self.event_ids: list[str] = []
        self.status = 0
        self.begun = trio.Event()
        """Its head has come: what changes from now on is told."""
        self.spoke = trio.Event()
        """Its first message has come."""
        self.over = trio.Event()
        self.scope = trio.CancelScope()
        self.reset = False
        self.expected: list[str] = []
        """What a standalone stream has to have brought."""

    async def follow(self, opening: Any) -> None:
        """Read; never raises, for what is wrong is found by who waits for it."""
        try:
            async with opening as stream:
                self.status = stream.status
                self.begun.set()
                with self.scope:
                    await self._read(stream)
                if self.scope.cancelled_caught:
                    stream.connection.leave(reset=self.reset)
        except ConnectionLost as exc:
            self.messages.append({"lost": str(exc)})
        finally:
            for event in (self.begun, self.spoke, self.over):
                event.set()

    async def _read(self, stream: Stream) -> None:
        if stream.headers.get("content-type") != "text/event-stream":
            return
        while (event := await stream.event(within=1e9)) is not None:
            if event.id is not None:
                self.event_ids.append(event.id)
            if event.data:
                self.messages.append(event.json)
                self.spoke.set()


# ----- What is driven


class Gates:
    """Where held calls wait."""

    def __init__(self) -> None:
        self.open: dict[str, trio.Event] = {}

    def server(self) -> Server:
        server = Server("life", version="1")

        @server.tool
        async def hold(label: str, ctx: Context) -> str:
            await ctx.progress(1)
            gate = self.open[label] = trio.Event()
            try:
                await gate.wait()
            finally:
                del self.open[label]
            return label

        @server.tool
        async def own(ctx: Context, value: str = "") -> str:
            assert ctx.session is not None
            if value:
                await ctx.session.set("own", value)
            return str(await ctx.session.get("own", ""))

        for number in range(3):
            server.resource(f"note://{number}", name=f"note{number}")(_note)
        return server


async def _note() -> str:
    return "a note"


class World:
    """Two replicas, their clients, and the model."""

    STEPS: Final = (
        *("initialize", "initialized", "ping", "own", "hold", "release", "cancel", "cut", "resume", "resume_foreign"),
        *("resume_invented", "listen", "leave", "subscribe", "unsubscribe", "update", "delete", "stranger", "wait"),
    )

    def __init__(
        self,
        https: list[Http],
        servers: list[Server],
        gates: list[Gates],
        *,
        nursery: trio.Nursery,
        settle: Callable[[Callable[[], bool]], Awaitable[None]],
        let_pass: Callable[[float], Awaitable[None]],
    ) -> None:
        """
        Args:
          https: the way to each replica.
          servers: what each of them serves.
          gates: where the calls of each of them wait.
          nursery: where followers run.
          settle: waits until nothing more happens and what it is given holds, or fails.
          let_pass: lets seconds pass.
        """
        self.https = https
        self.servers = servers
        self.gates = gates
        self.nursery = nursery
        self.settle = settle
        self.let_pass = let_pass
        self.now = 0.0
        self.stays: list[Stay] = []
        self.numbers = 0

    # ----- A step and what has to hold after it

    async def do(self, step: Step) -> None:
        """Do it, and compare."""
        with trio.fail_after(1000):
            await getattr(self, f"_{step.what}")(step)
            await self.settle(self.as_it_should_be)

    def as_it_should_be(self) -> bool:
        """Whether the replicas have in use what the model says, and listeners have heard what they had to."""
        for number, http in enumerate(self.https):
            if http.endpoint.sessions.busy() != sum(number in self._in_use(stay) for stay in self.stays):
                return False
            running = sum(call.replica == number and not call.outcome for stay in self.stays for call in stay.calls)
            if len(http.endpoint.calls) != running:
                return False
        return all(
            [_heard(message) for message in stay.listener.messages] == stay.listener.expected
            for stay in self.stays
            if stay.listener is not None
        )

    def _in_use(self, stay: Stay) -> set[int]:
        return {
            *(call.replica for call in stay.calls if not call.outcome),
            *(
                follower.replica
                for follower in [stay.listener, *stay.resuming]
                if follower and not follower.over.is_set()
            ),
        }

    def _alive(self, stay: Stay) -> bool:
        if not stay.over and not self._in_use(stay) and stay.ends <= self.now:
            stay.over = True
        return not stay.over

    def _used(self, stay: Stay) -> None:
        """An exchange of it has ended just now."""
        stay.ends = self.now + (IDLE if stay.initialized else UNINITIALIZED)

    def _stay(self, step: Step) -> Stay | None:
        return self.stays[step.which % len(self.stays)] if self.stays else None

    def _call(self, step: Step, *, running: bool = False) -> Held | None:
        calls = [call for stay in self.stays for call in stay.calls if not (running and call.outcome)]
        return calls[step.which % len(calls)] if calls else None

    def _at(self, stay: Stay, replica: int) -> Session:
        return Session(self.https[replica], stay.id, stay.revision, {})

    def _unique(self) -> str:
        self.numbers += 1
        return f"text-{self.numbers}"

    async def _say(
        self, step: Step, say: Callable[[Session], Awaitable[Any]], status: int = 200
    ) -> tuple[Stay, Any] | None:
        """Let a session say something; what came of it, if it is alive, and else it must be 404."""
        stay = self._stay(step)
        if stay is None:
            return None
        alive = self._alive(stay)
        response = await say(self._at(stay, step.replica))
        assert response.status == (status if alive else 404), (response.status, response.body, stay)
        if not alive:
            return None
        self._used(stay)
        return stay, response

    # ----- Steps

    async def _initialize(self, step: Step) -> None:
        revision = REVISIONS[step.more % len(REVISIONS)]
        session = await self.https[step.replica].initialize(revision, initialized=False)
        assert session.version == revision
        assert session.id not in {stay.id for stay in self.stays}
        self.stays.append(Stay(session.id, revision, self.now + UNINITIALIZED))

    async def _initialized(self, step: Step) -> None:
        said = await self._say(step, lambda session: session.notify("notifications/initialized"), 202)
        if said is not None:
            said[0].initialized = True
            self._used(said[0])

    async def _ping(self, step: Step) -> None:
        said = await self._say(step, lambda session: session.post("ping", id=IDS[step.more % 2]))
        if said is not None:
            assert said[1].answer == {"jsonrpc": "2.0", "id": IDS[step.more % 2], "result": {}}

    async def _own(self, step: Step) -> None:
        value = self._unique() if step.more % 2 else ""
        said = await self._say(step, lambda session: session.call("own", {"value": value}, id=1))
        if said is not None:
            stay, response = said
            stay.own = value or stay.own
            assert response.text == stay.own

    async def _subscribe(self, step: Step) -> None:
        uri = f"note://{step.more % 3}"
        said = await self._say(step, lambda session: session.post("resources/subscribe", {"uri": uri}))
        if said is not None:
            said[0].subscribed.add(uri)

    async def _unsubscribe(self, step: Step) -> None:
        uri = f"note://{step.more % 3}"
        said = await self._say(step, lambda session: session.post("resources/unsubscribe", {"uri": uri}))
        if said is not None:
            said[0].subscribed.discard(uri)

    async def _update(self, step: Step) -> None:
        """Something changes, at one of the replicas: a resource, or the list of tools."""
        uri = f"note://{step.more}" if step.more < 3 else ""
        if uri:
            self.servers[step.replica].notify_resource_updated(uri)
        else:
            self.servers[step.replica].notify_tools_changed()
        for stay in self.stays:
            if stay.listener is not None and (not uri or uri in stay.subscribed):
                stay.listener.expected.append(uri or "tools")

    async def _hold(self, step: Step) -> None:
        """A call that does not end yet."""
        stay = self._stay(step)
        if stay is None or len(stay.calls) > 6:
            return
        call = Held(stay, IDS[step.more % 2], self._unique(), step.replica)
        follower = Follower(step.replica)
        opening = self._at(stay, step.replica).open(
            "tools/call", call_params("hold", {"label": call.label}, call.label), id=call.id
        )
        alive = self._alive(stay)
        self.nursery.start_soon(follower.follow, opening)
        await follower.spoke.wait()
        if not alive:
            assert follower.status == 404
            return
        (begun,) = follower.messages
        assert begun["params"]["progressToken"] == call.label
        call.follower = follower
        call.event_ids = follower.event_ids
        stay.calls.append(call)

    async def _release(self, step: Step) -> None:
        call = self._call(step, running=True)
        if call is not None:
            call.outcome = "released"
            self.gates[call.replica].open[call.label].set()
            await self._ended(call)

    async def _cancel(self, step: Step) -> None:
        """Cancel a call, wherever the notification comes in. Who has numbered two alike loses those of one replica."""
        call = self._call(step, running=True)
        if call is None:
            return
        same = [
            each
            for each in call.stay.calls
            if not each.outcome and each.id == call.id and type(each.id) is type(call.id)
        ]
        hit = [each for each in same if each.replica == step.replica] or same
        response = await self._at(call.stay, step.replica).notify("notifications/cancelled", {"requestId": call.id})
        assert response.status == 202
        for each in hit:
            each.outcome = "cancelled"
        for each in hit:
            await self._ended(each)

    async def _ended(self, call: Held) -> None:
        """The call has ended: whoever reads its response has got it, once, and nothing else."""
        call.ended = self.now
        if call.follower is not None:
            await _over(call.follower)
            responses = call.follower.messages[1:]
            assert len(responses) == (call.outcome != "cancelled"), (call, responses)
            assert all(map(call.answers, responses)), (call, responses)
        self._used(call.stay)

    async def _cut(self, step: Step) -> None:
        """The client loses the connection of a call; the call goes on."""
        call = self._call(step, running=True)
        if call is not None and call.follower is not None:
            follower, call.follower = call.follower, None
            await _cut(follower, reset=step.more % 2 == 0)

    async def _resume(self, step: Step) -> None:
        """The rest of a call's stream, from any event that the client has, at any replica."""
        call = self._call(step)
        if call is None or not call.event_ids or (call.outcome and self.now > call.ended + KEPT):
            return
        place = step.more % len(call.event_ids)
        follower = Follower(step.replica)
        alive = self._alive(call.stay)
        self.nursery.start_soon(follower.follow, self._at(call.stay, step.replica).get(call.event_ids[place]))
        await follower.begun.wait()
        if not alive:
            assert follower.status == 404
            return
        assert follower.status == 200, (follower.status, call)
        call.stay.resuming.append(follower)
        self._used(call.stay)
        if call.outcome:
            await _over(follower)
            self._check_resumed(call, place, follower)
            return
        # It goes on until the call ends; look at it then.
        self.nursery.start_soon(self._check_later, call, place, follower)

    async def _check_later(self, call: Held, place: int, follower: Follower) -> None:
        await follower.over.wait()
        if call.outcome != "deleted":
            self._check_resumed(call, place, follower)

    def _check_resumed(self, call: Held, place: int, follower: Follower) -> None:
        # Of three events with an id the first may be the priming one: then there are two that carry something after it.
        found = [message for message in follower.messages if "method" in message]
        primed = call.stay.revision == "2025-11-25"
        assert len(found) == (primed and place == 0), (call, place, follower.messages)
        assert all(message["params"]["progressToken"] == call.label for message in found)
        responses = [message for message in follower.messages if "method" not in message]
        last = place == (2 if primed else 1)
        assert len(responses) == (call.outcome == "released" and not last), (call, place, follower.messages)
        assert all(map(call.answers, responses)), (call, responses)

    async def _resume_foreign(self, step: Step) -> None:
        """Another session's event is none of ours."""
        call = self._call(step)
        others = [stay for stay in self.stays if call is not None and stay is not call.stay and stay.resumable]
        if call is None or not call.event_ids or not others:
            return
        await self._refused(others[step.more % len(others)], step.replica, call.event_ids[-1])

    async def _resume_invented(self, step: Step) -> None:
        stay = self._stay(step)
        if stay is not None and stay.resumable:
            await self._refused(stay, step.replica, INVENTED[(step.more + self.numbers) % len(INVENTED)])

    async def _refused(self, stay: Stay, replica: int, last: str) -> None:
        alive = self._alive(stay)
        async with self._at(stay, replica).get(last) as stream:
            assert stream.status == (400 if alive else 404), (stream.status, last)
        if alive:
            self._used(stay)

    async def _listen(self, step: Step) -> None:
        """The standalone stream; a newer one takes over, wherever the older one is."""
        stay = self._stay(step)
        if stay is None or not stay.initialized:
            return
        follower = Follower(step.replica)
        alive = self._alive(stay)
        self.nursery.start_soon(follower.follow, self._at(stay, step.replica).get())
        await follower.begun.wait()
        if not alive:
            assert follower.status == 404
            return
        before, stay.listener = stay.listener, follower
        if before is not None:
            await _over(before)

    async def _leave(self, step: Step) -> None:
        stay = self._stay(step)
        if stay is not None and stay.listener is not None:
            follower, stay.listener = stay.listener, None
            await _cut(follower, reset=step.more % 2 == 0)
            self._used(stay)

    async def _delete(self, step: Step) -> None:
        """The end of a session, of all its calls, and of all its streams, everywhere."""
        stay = self._stay(step)
        if stay is None:
            return
        alive = self._alive(stay)
        response = await self._at(stay, step.replica).delete()
        assert response.status == (204 if alive else 404)
        if alive:
            stay.over = True
            for call in stay.calls:
                if not call.outcome:
                    call.outcome = "deleted"
                    await self._ended(call)
            for follower in [stay.listener, *stay.resuming]:
                if follower is not None:
                    await _over(follower)
            stay.listener = None
        for replica in (0, 1):
            assert (await self._at(stay, replica).post("ping")).status == 404
            assert (await self._at(stay, replica).delete()).status == 404

    async def _stranger(self, step: Step) -> None:
        """An ID that nobody has."""
        session = Session(self.https[step.replica], ("A" * 24, "x", "A" * 23 + "=")[step.more % 3], REVISIONS[0], {})
        assert (await session.post("ping")).status == 404
        assert (await session.notify("notifications/initialized")).status == 404
        assert (await session.delete()).status == 404
        async with session.get() as stream:
            assert stream.status == 404

    async def _wait(self, step: Step) -> None:
        seconds = PAUSES[step.more % len(PAUSES)]
        await self.let_pass(seconds)
        for stay in self.stays:
            if self._in_use(stay):
                self._used(stay)
                stay.ends += seconds
        self.now += seconds
        alive = sum(map(self._alive, self.stays))
        for http in self.https:
            assert await http.count() == alive

    # ----- The end

    async def end(self) -> None:
        """End all that there is."""
        for number in range(len(self.stays)):
            await self.do(Step("delete", number, number % 2, 0))
        for stay in self.stays:
            for call in stay.calls:
                assert call.outcome
        for http, gates in zip(self.https, self.gates, strict=True):
            assert not gates.open
            assert not http.endpoint.streams
            assert await http.count() == 0


def _heard(message: Any) -> str:
    return str(
        message["params"]["uri"]
        if message["method"] == "notifications/resources/updated"
        else message["method"].split("/")[1]
    )


async def _over(follower: Follower) -> None:
    with trio.fail_after(WITHIN):
        await follower.over.wait()
    assert not [message for message in follower.messages if "lost" in message], follower.messages


async def _cut(follower: Follower, *, reset: bool) -> None:
    follower.reset = reset
    follower.scope.cancel()
    await follower.over.wait()


async def live(
    program: list[Step],
    stores: tuple[Any, Any],
    settle: Callable[[list[Http], Callable[[], bool]], Awaitable[None]],
    let_pass: Callable[[list[Http], float], Awaitable[None]],
    ids: list[str],
) -> None:
    """Run a program on replicas with these stores; AssertionError for what is not as the model says.

    The IDs of all its sessions, which have ended then, are added to *ids*.
    """
    gates = [Gates(), Gates()]
    servers = [each.server() for each in gates]
    async with AsyncExitStack() as stack:
        https = [
            await stack.enter_async_context(serving(server, front=front, store=store, **SETTINGS))
            for server, front, store in zip(servers, ("direct", "hypercorn"), stores, strict=True)
        ]
        await settle(https, lambda: True)
        before = trio.lowlevel.current_statistics().tasks_living
        async with trio.open_nursery() as nursery:
            world = World(
                https,
                servers,
                gates,
                nursery=nursery,
                settle=lambda condition: settle(https, condition),
                let_pass=lambda seconds: let_pass(https, seconds),
            )
            for step in program:
                await world.do(step)
            await world.end()
            ids += [stay.id for stay in world.stays]
        # What has expired is freed by the next sweep.
        await let_pass(https, 5.0)
        await settle(https, lambda: trio.lowlevel.current_statistics().tasks_living == before)
