"""Handles: state that a client carries from call to call, in both eras."""

import re
from typing import Any

import pytest
import trio

from mcpd import Context, Server, Settings, ToolError
from mcpd.errors import SettingError
from mcpd.handles import MAX_VALUE, Handles
from mcpd.server.principal import Principal, identity_of
from mcpd_stores.memory import MemoryStore
from tests.harness import serving
from tests.requirements import requirement
from tests.server.peer import Peer, talking
from tests.server.replica import ADA, EVE, OTHER_ADA, Replica, running

ERAS = pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25", "2026-07-28"])
UNKNOWN = "Unknown or expired handle"


def baskets() -> Server:
    """A shop whose baskets are handles."""
    server = Server("shop")

    @server.tool
    async def new_basket(ctx: Context, ttl: float = 60.0) -> str:
        return await ctx.handles.create([], ttl=ttl)

    @server.tool
    async def put(basket: str, thing: str, ctx: Context) -> list[str]:
        found: list[str] = await ctx.handles.update(basket, lambda things: [*things, thing])
        return found

    @server.tool
    async def look(basket: str, ctx: Context) -> list[str]:
        found: list[str] = await ctx.handles.get(basket)
        return found

    @server.tool
    async def empty(basket: str, ctx: Context) -> None:
        await ctx.handles.set(basket, [])

    @server.tool
    async def throw_away(basket: str, ctx: Context) -> bool:
        return await ctx.handles.delete(basket)

    return server


async def call(peer: Peer, tool: str, **arguments: Any) -> str:
    result = await peer.call(tool, arguments)
    assert not result.get("isError"), result
    return "".join(block["text"] for block in result["content"])


async def new(replica: Replica, principal: Principal | None = None) -> str:
    handle = await replica.core.handles.of(identity_of(principal)).create(["secret"], ttl=60.0)
    assert re.fullmatch(r"h[0-9a-f]+_[A-Za-z0-9_-]{24}", handle)
    return handle


# ----- In both eras


@requirement("M189", "C49")
@ERAS
async def test_a_handle_is_state_between_calls(revision):
    async with talking(baskets(), revision) as peer:
        first, second = [await call(peer, "new_basket") for _ in range(2)]
        assert first != second
        await call(peer, "put", basket=first, thing="bread")
        assert await call(peer, "put", basket=first, thing="wine") == '["bread","wine"]'
        assert await call(peer, "look", basket=second) == "[]"
        await call(peer, "empty", basket=first)
        assert await call(peer, "look", basket=first) == "[]"
        assert await call(peer, "throw_away", basket=first) == "true"
        assert await call(peer, "throw_away", basket=first) == "false"
        assert (await peer.call("look", {"basket": first}))["isError"] is True
        assert await call(peer, "look", basket=second) == "[]"


@requirement("M189", "C50")
async def test_a_handle_is_good_on_every_replica_and_in_every_era():
    store = MemoryStore()
    async with serving(baskets(), store=store) as one, serving(baskets(), store=store) as two:
        handle = (await one.call("new_basket")).text
        await two.call("put", {"basket": handle, "thing": "bread"})
        session = await one.initialize()
        assert (await session.call("look", {"basket": handle})).text == '["bread"]'


@requirement("M189")
@ERAS
async def test_a_handle_lives_from_its_last_use(revision, autojump_clock):
    async with talking(baskets(), revision) as peer:
        handle = await call(peer, "new_basket", ttl=60)
        for tool in ("look", "empty", "look"):
            await trio.sleep(59)
            await call(peer, tool, basket=handle)
        await trio.sleep(61)
        for tool, more in (("look", {}), ("put", {"thing": "x"}), ("empty", {})):
            result = await peer.call(tool, {"basket": handle, **more})
            assert result["isError"] is True
            assert result["content"][0]["text"] == UNKNOWN
        assert await call(peer, "throw_away", basket=handle) == "false"


@requirement("M189")
@pytest.mark.parametrize("ttl", [0, -1, 86_400.001, 1e300])
async def test_how_long_a_handle_may_live_is_bounded(ttl, caplog):
    async with talking(baskets()) as peer:
        result = await peer.call("new_basket", {"ttl": ttl})
        assert result["isError"] is True
    assert f"up to 86400 s, not {ttl!r}" in caplog.text or f"not {float(ttl)!r}" in caplog.text


@pytest.mark.parametrize("ttl", [float("nan"), float("inf")])
async def test_a_time_that_is_none_is_refused(ttl):
    async with running(Server("s")) as replica:
        with pytest.raises(ValueError, match="A handle lives for up to"):
            await replica.core.handles.of(None).create(1, ttl=ttl)


async def test_a_very_short_life_is_a_life(autojump_clock):
    async with running(Server("s")) as replica:
        handles = replica.core.handles.of(None)
        handle = await handles.create(1, ttl=0.0001)
        assert await handles.get(handle) == 1


# ----- The cap


@requirement("M189")
async def test_at_the_cap_a_handle_is_refused_and_none_gives_way(autojump_clock):
    async with talking(baskets(), max_handles=3) as peer:
        kept = [await call(peer, "new_basket", ttl=ttl) for ttl in (60, 120, 30)]
        for _ in range(2):
            result = await peer.call("new_basket", {"ttl": 60})
            assert result["isError"] is True
            assert result["content"][0]["text"] == "There are too many handles; delete one, or try again later"
        for handle in kept:
            assert await call(peer, "look", basket=handle) == "[]"
        await call(peer, "throw_away", basket=kept[0])
        kept[0] = await call(peer, "new_basket", ttl=60)
        await trio.sleep(31)  # the one of 30 s is over
        assert (await peer.call("look", {"basket": kept[2]}))["isError"] is True
        await call(peer, "new_basket", ttl=60)
        assert (await peer.call("new_basket", {"ttl": 60}))["isError"] is True


async def test_a_value_that_is_too_large_or_none_of_json_changes_nothing():
    async with running(Server("s")) as replica:
        handles = replica.core.handles.of(None)
        with pytest.raises(ValueError, match=f"takes {MAX_VALUE + 2} bytes, of at most {MAX_VALUE}"):
            await handles.create("x" * MAX_VALUE)
        with pytest.raises(TypeError):
            await handles.create(object())
        handle = await handles.create("x" * (MAX_VALUE - 2))
        for wrong in ("x" * MAX_VALUE, object()):
            with pytest.raises((ValueError, TypeError)):
                await handles.set(handle, wrong)
        assert await handles.get(handle) == "x" * (MAX_VALUE - 2)
        assert await replica.core.store.records("handle").count() == 1


# ----- Whose it is


@requirement("M189")
async def test_a_foreign_handle_is_an_unknown_one_byte_for_byte():
    server = baskets()
    async with running(server) as replica:
        handle = await new(replica, ADA)
        never = await new(replica, ADA)
        await replica.core.handles.of(ADA.identity).delete(never)

        async def answers(handle: str, principal: Principal | None) -> list[bytes]:
            found: list[bytes] = []
            for tool, more in (("look", {}), ("put", {"thing": "x"}), ("empty", {}), ("throw_away", {})):
                call = replica.call("tools/call", {"name": tool, "arguments": {"basket": handle, **more}}, principal)
                call.id = 1
                answer = await replica.core.dispatcher.answer(call)
                assert answer is not None
                found.append(answer.body)
            return found

        expected = await answers("h1_" + "A" * 24, EVE)
        for principal in (EVE, OTHER_ADA, None):
            assert await answers(handle, principal) == expected
            assert await answers(never, principal) == expected
        assert await answers(never, ADA) == expected
        call = replica.call("tools/call", {"name": "look", "arguments": {"basket": handle}}, ADA)
        answer = await replica.core.dispatcher.answer(call)
        assert answer is not None
        assert b"secret" in answer.body


@requirement("M189")
async def test_a_changed_handle_is_unknown():
    async with running(Server("s")) as replica:
        handles = replica.core.handles.of(None)
        handle = await new(replica)
        ttl, _, rest = handle[1:].partition("_")
        changed = [
            f"h{int(ttl, 16) + 1:x}_{rest}",
            f"h{'f' * 12}_{rest}",
            f"h0{ttl}_{rest}",
            f"h{ttl.upper()}_{rest}",
            f"h_{rest}",
            f"h-1_{rest}",
            f"h{ttl}_{rest[:-1]}",
            f"h{ttl}_{rest}x",
            f"h{ttl}_{rest[:-1]}{'A' if rest[-1] != 'A' else 'B'}",
            f"{handle}\n",
            f" {handle}",
            f"h{ttl}_{rest}.x",
            f".{handle}",
            "",
            "h",
            "*",
            "\x00",
            "x" * 1_000_000,
        ]
        for text in {*changed} - {handle}:
            with pytest.raises(ToolError, match=UNKNOWN):
                await handles.get(text)
            with pytest.raises(ToolError, match=UNKNOWN):
                await handles.set(text, 1)
            assert await handles.delete(text) is False
        assert await handles.get(handle) == ["secret"]


@requirement("M189")
async def test_a_principal_cannot_be_written_so_that_it_is_another():
    async with running(Server("s")) as replica:
        names = [("", "a"), ("a", ""), ("a", "a"), ('a","a', ""), ("", 'a","a'), ("a.h", "1"), ("a", ".h1")]
        owners = [None, *(Principal(issuer, subject) for issuer, subject in names)]
        handles = [await new(replica, owner) for owner in owners]
        for handle, owner in zip(handles, owners, strict=True):
            for other in owners:
                if other is not owner:
                    with pytest.raises(ToolError):
                        await replica.core.handles.of(identity_of(other)).get(handle)
            assert await replica.core.handles.of(identity_of(owner)).get(handle) == ["secret"]


async def test_handles_are_not_to_be_guessed():
    handles = Handles(MemoryStore(), capacity=2_000, max_ttl=100.0)
    found = [await handles.of(None).create(1, ttl=10.0) for _ in range(1_000)]
    # 18 random bytes each: every position takes every letter of the alphabet.
    secrets = [handle.partition("_")[2] for handle in found]
    assert len(set(secrets)) == 1_000
    assert all(len({secret[i] for secret in secrets}) > 50 for i in range(24))


# ----- At the same time


async def test_updates_at_the_same_time_all_count():
    store = MemoryStore()
    async with running(baskets(), store) as one, running(baskets(), store) as two:
        handle = await one.core.handles.of(None).create(0, ttl=60.0)

        async def count(replica: Replica) -> None:
            for _ in range(10):
                await replica.core.handles.of(None).update(handle, lambda n: n + 1)

        async with trio.open_nursery() as nursery:
            for replica in (one, two) * 5:
                nursery.start_soon(count, replica)
        assert await one.core.handles.of(None).get(handle) == 100


async def test_an_update_revives_no_handle_that_was_deleted_meanwhile():
    async with running(Server("s")) as replica:
        handles = replica.core.handles.of(None)
        handle = await handles.create(0, ttl=60.0)
        async with trio.open_nursery() as nursery:

            def change(value: int) -> int:
                nursery.start_soon(handles.delete, handle)
                return value + 1

            with pytest.raises(ToolError, match=UNKNOWN):
                while True:
                    await handles.update(handle, change)
        assert await handles.delete(handle) is False


async def test_a_change_that_fails_changes_nothing():
    async with running(Server("s")) as replica:
        handles = replica.core.handles.of(None)
        handle = await handles.create([1], ttl=60.0)
        with pytest.raises(ZeroDivisionError):
            await handles.update(handle, lambda value: value[0] / 0)
        assert await handles.get(handle) == [1]


@requirement("M189")
async def test_what_has_expired_is_freed(autojump_clock):
    store = MemoryStore()
    async with running(Server("s"), store) as replica:
        for _ in range(50):
            await new(replica)
        await trio.sleep(62)
        assert not store._records["handle"]._orders


async def test_a_server_without_a_store_says_so():
    async with running(Server("s")) as replica:
        context = Context(replica.core.server, replica.call("tools/call"))
        with pytest.raises(RuntimeError, match="without a store for handles"):
            _ = context.handles


@pytest.mark.parametrize("setting", ["max_handles", "max_handle_ttl"])
def test_a_bound_of_nothing_is_refused_by_name(setting):
    with pytest.raises(SettingError, match=setting):
        Settings(**{setting: 0})
