"""What is live on one replica is reached from all: questions, cancellations, ends, changes (reports R25, R26)."""

import trio

from tests.harness import Process, Session
from tests.replicas.group import at
from tests.stores.redis_server import until

LISTEN = "subscriptions/listen"


async def test_r25_an_answer_reaches_the_replica_that_asked(three: list[Process]) -> None:
    """The answer to a tool's question reached another process, and the tool hung."""
    a, b, _ = three
    session = await a.initialize(capabilities={"elicitation": {}})
    async with session.open_call("ask", {"question": "Who are you?"}, id=7) as stream:
        question = await stream.message()
        assert question["method"] == "elicitation/create"
        # Answers to what nobody asked have no effect.
        for id_ in ("unknown", 7, 1):
            answer = {"jsonrpc": "2.0", "id": id_, "result": {"action": "cancel"}}
            assert (await at(session, b).send(answer)).status == 202
        stranger = await b.initialize()
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"name": "Ada"}}}
        assert (await stranger.send(answer | {"result": {"action": "cancel"}})).status == 202
        assert (await at(session, b).send(answer)).status == 202
        (last,) = await stream.rest(within=1.0)
        assert last["result"]["content"][0]["text"] == f"{a.pid} accept Ada"


async def test_a_client_that_cannot_be_asked_gets_an_error_at_once(three: list[Process]) -> None:
    session = await three[0].initialize()
    response = await at(session, three[1]).call("ask", {"question": "Who are you?"}, within=1.0)
    assert "error" in response.answer or response.result["isError"], response.body


async def test_a_call_is_cancelled_from_another_replica(three: list[Process]) -> None:
    a, b, _ = three
    session = await a.initialize()
    async with session.open_call("hold", {"label": "one"}, id=3, progress="p") as stream:
        assert (await stream.message())["method"] == "notifications/progress"
        stranger = await b.initialize()
        assert (await stranger.notify("notifications/cancelled", {"requestId": 3})).status == 202
        assert (await at(session, b).notify("notifications/cancelled", {"requestId": 4})).status == 202
        assert (await session.post("ping")).status == 200
        assert "cancelled one" not in a.stderr
        assert (await at(session, b).notify("notifications/cancelled", {"requestId": 3})).status == 202
        assert await stream.rest(within=2.0) == []  # a cancelled request gets no response
    await until(lambda: "cancelled one" in a.stderr)


async def test_delete_ends_streams_and_calls_everywhere(three: list[Process]) -> None:
    a, b, c = three
    session = await a.initialize()
    async with (
        session.get() as at_a,
        at(session, b).get() as at_b,
        at(session, b).open_call("hold", {"label": "two"}, id=1, progress=1) as call_at_b,
        session.open_call("hold", {"label": "three"}, id=2, progress=2) as call_at_a,
    ):
        for stream in (call_at_b, call_at_a):
            assert (await stream.message())["method"] == "notifications/progress"
        with trio.fail_after(2):
            assert (await at(session, c).delete()).status == 204
            assert await at_b.rest() == []
            for stream, id_ in ((call_at_b, 1), (call_at_a, 2)):
                (last,) = await stream.rest()
                assert (last["id"], last["error"]["message"]) == (id_, "The session was terminated")
            assert await at_a.rest() == []
    await until(lambda: "cancelled two" in b.stderr and "cancelled three" in a.stderr)
    for replica in three:
        assert (await at(session, replica).post("ping")).status == 404
        assert (await at(session, replica).delete()).status == 404


async def test_a_stream_is_resumed_elsewhere_while_the_call_goes_on(three: list[Process]) -> None:
    a, b, c = three
    session = await a.initialize()
    word = "multitudes"
    async with session.open_call("spell", {"word": word, "pause": 0.2}, id=5, progress="p") as stream:
        seen = [(await stream.message())["params"]["message"] for _ in range(2)]
        stream.cut()
    # Other streams' events are not part of it.
    async with session.open_call("spell", {"word": "other", "pause": 0.05}, id=6, progress="q") as other:
        assert len(await other.rest()) == 6
    async with at(session, b).get(stream.last_id) as rest:
        assert rest.status == 200
        seen += [(await rest.message())["params"]["message"] for _ in range(2)]
        rest.cut()
    async with at(session, c).get(rest.last_id) as rest:
        *more, last = await rest.rest(within=10.0)
    seen += [message["params"]["message"] for message in more]
    assert "".join(seen) == word
    assert (last["id"], last["result"]["content"][0]["text"]) == (5, word)
    # It is over; who asks again gets the same end, from any replica.
    async with at(session, a).get(rest.last_id) as again:
        assert await again.rest(within=2.0) == []


async def test_a_stream_of_another_session_cannot_be_resumed(three: list[Process]) -> None:
    a, b, _ = three
    session, stranger = await a.initialize(), await b.initialize()
    async with session.open_call("spell", {"word": "secret", "pause": 0.0}, progress="p") as stream:
        await stream.rest()
    async with stranger.get(stream.last_id) as stolen:
        assert stolen.status == 400


async def _hear(session: Session, heard: list[str], *, task_status: trio.TaskStatus[None]) -> None:
    async with session.get() as stream:
        # The priming event: the stream is open and will be told.
        assert (await stream.event()).data == ""
        task_status.started()
        while (event := await stream.event()) is not None:
            if event.data:
                heard.append(event.json["method"])


async def test_r26_a_change_reaches_every_stream_that_wants_it_once(three: list[Process]) -> None:
    """Changes were told to nobody, or to everybody."""
    a, b, c = three
    subscribed, other = await a.initialize(), await a.initialize()
    uri = "replica://watched"
    assert (await subscribed.post("resources/subscribe", {"uri": uri})).status == 200
    told: dict[str, list[str]] = {"subscribed": [], "other": []}
    updated = "notifications/resources/updated"
    async with trio.open_nursery() as nursery:
        await nursery.start(_hear, at(subscribed, b), told["subscribed"])
        await nursery.start(_hear, at(other, c), told["other"])
        params = {"notifications": {"resourceSubscriptions": [uri]}}
        async with b.open_modern(LISTEN, params) as listening, c.open_modern(LISTEN, params) as listening_too:
            for stream in (listening, listening_too):
                assert (await stream.message())["method"] == "notifications/subscriptions/acknowledged"
            assert (await other.call("change", {"uri": uri})).text == "changed"
            assert (await other.call("change", {"uri": "replica://another"})).text == "changed"
            for stream in (listening, listening_too):
                message = await stream.message(within=2.0)
                assert (message["method"], message["params"]["uri"]) == (updated, uri)
            await until(lambda: told["subscribed"])
            # What is told after it comes after it: then nothing was told twice.
            assert (await at(other, c).call("change", {"uri": uri})).text == "changed"
            for stream in (listening, listening_too):
                assert (await stream.message(within=2.0))["params"]["uri"] == uri
            await until(lambda: len(told["subscribed"]) >= 2)
        nursery.cancel_scope.cancel()
    assert told == {"subscribed": [updated] * 2, "other": []}


async def test_tools_changed_in_the_background_are_told_to_both_eras(three: list[Process]) -> None:
    a, b, c = three
    changed = "notifications/tools/list_changed"
    sessions = [await a.initialize(), await b.initialize()]
    heard: list[list[str]] = [[], []]
    async with trio.open_nursery() as nursery:
        await nursery.start(_hear, at(sessions[0], b), heard[0])
        await nursery.start(_hear, at(sessions[1], c), heard[1])
        async with (
            b.open_modern(LISTEN, {"notifications": {"toolsListChanged": True}}) as wants,
            c.open_modern(LISTEN, {"notifications": {"promptsListChanged": True}}) as does_not,
        ):
            for stream in (wants, does_not):
                assert (await stream.message())["method"] == "notifications/subscriptions/acknowledged"
            for count in (1, 2):
                assert (await a.call("change")).text == "changed"
                assert (await wants.message(within=2.0))["method"] == changed
                await until(lambda count=count: [len(each) for each in heard] >= [count] * 2)
            with trio.move_on_after(0.3) as nothing:
                await does_not.message()
            assert nothing.cancelled_caught
        nursery.cancel_scope.cancel()
    assert heard == [[changed] * 2] * 2


async def test_the_newest_standalone_stream_takes_over_wherever_it_is_opened(three: list[Process]) -> None:
    session, other = await three[0].initialize(), await three[0].initialize()
    async with at(other, three[1]).get() as stays:
        await stays.event()
        last_id = None
        for turn in range(6):
            here, there = three[turn % 3], three[(turn + 1) % 3]
            async with at(session, here).get(last_id) as first:
                if last_id is None:
                    assert (await first.event()).data == ""
                async with at(session, there).get(first.last_id or last_id) as second:
                    assert await first.rest(within=2) == []
                    assert (await at(session, here).call("change", {"uri": "replica://nobody"})).text == "changed"
                    assert (await session.call("change")).text == "changed"
                    assert (await second.message(within=2))["method"] == "notifications/tools/list_changed"
                    last_id = second.last_id
        assert not stays.ended


async def test_of_streams_that_are_opened_together_one_stays(three: list[Process]) -> None:
    session = await three[0].initialize()
    for _ in range(5):
        ended: list[int] = []

        told: list[int] = []

        async def one(number: int, ended: list[int] = ended, told: list[int] = told) -> None:
            async with at(session, three[number % 3]).get() as stream:
                while (event := await stream.event()) is not None:
                    if event.data:
                        told.append(number)
                ended.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(6):
                nursery.start_soon(one, number)
            await until(lambda ended=ended: len(ended) == 5)
            assert (await session.call("change")).text == "changed"
            await until(lambda told=told: told)
            assert set(told) == set(range(6)) - set(ended)
            nursery.cancel_scope.cancel()
