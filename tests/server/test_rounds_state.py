"""`requestState`: what travels between two rounds, and whose it is."""

import base64
from typing import Any

import trio

from mcpd import Server
from mcpd.server.principal import Principal
from mcpd_stores.memory import MemoryStore
from tests.requirements import requirement
from tests.server.asking import (
    ALL,
    FROZEN,
    KEYS,
    NAME,
    greeter,
    hello,
    state_of,
    text_of,
)
from tests.server.replica import ADA, EVE, OTHER_ADA, running


@requirement("T255", "C50")
async def test_another_replica_with_the_same_key_goes_on():
    store = MemoryStore()
    async with (
        running(greeter(Server("a")), store, state_keys=KEYS) as one,
        running(greeter(Server("a")), store, state_keys=KEYS) as two,
        running(greeter(Server("a")), store, state_keys=("another-key-of-24-characters",)) as three,
        running(greeter(Server("a")), store) as four,
    ):
        retry = hello(requestState=await state_of(one), inputResponses={"two": NAME})
        assert text_of(await two.result("tools/call", retry, capabilities=ALL)) == "Hi Ada for None"
        for foreign in (three, four):
            assert await foreign.error("tools/call", retry, capabilities=ALL) == FROZEN


@requirement("T255")
async def test_keys_can_be_rotated():
    new = ("0123456789abcdef-second", *KEYS)
    async with (
        running(greeter(Server("a")), state_keys=KEYS) as old,
        running(greeter(Server("a")), state_keys=new) as both,
    ):
        retry = hello(requestState=await state_of(old), inputResponses={"two": NAME})
        await both.result("tools/call", retry, capabilities=ALL)
        sealed_by_new = hello(requestState=await state_of(both), inputResponses={"two": NAME})
        assert await old.error("tools/call", sealed_by_new, capabilities=ALL) == FROZEN
        async with running(greeter(Server("a")), state_keys=new[:1]) as last:
            await last.result("tools/call", sealed_by_new, capabilities=ALL)
            assert await last.error("tools/call", retry, capabilities=ALL) == FROZEN


@requirement("T248", "T249")
async def test_a_state_is_bound_to_who_asked_for_what():
    async with running(greeter(Server("a"))) as replica:
        state = await state_of(replica, principal=ADA)
        retry = hello(requestState=state, inputResponses={"two": NAME})

        async def error(method: str, params: dict[str, Any], principal: Principal | None = ADA) -> dict[str, Any]:
            return await replica.error(method, params, principal=principal, capabilities=ALL)

        for principal in (EVE, OTHER_ADA, None):
            assert await error("tools/call", retry, principal) == FROZEN
        for changed in (
            retry | {"name": "other"},
            retry | {"arguments": {"greeting": "Ho"}},
            retry | {"arguments": {"greeting": "Hi", "x": 1}},
            retry | {"arguments": {}},
            {key: value for key, value in retry.items() if key != "arguments"},
        ):
            assert await error("tools/call", changed) == FROZEN
        assert await error("prompts/get", retry) == FROZEN
        # The same user with a new token, for another client and with other scopes, is the same user.
        renewed = Principal(ADA.issuer, ADA.subject, "another-client", frozenset({"more"}), {"jti": "2"})
        for principal in (ADA, renewed):
            result = await replica.result("tools/call", retry, principal=principal, capabilities=ALL)
            assert text_of(result) == "Hi Ada for ada"


@requirement("T249")
async def test_a_retry_may_differ_in_what_is_not_the_call(autojump_clock):
    async with running(greeter(Server("a"))) as replica:
        state = await state_of(replica)
        retry = hello(requestState=state, inputResponses={"two": NAME}, _meta={"progressToken": 5, "traceparent": "x"})
        retry["arguments"] = dict(reversed(retry["arguments"].items()))
        await replica.result("tools/call", retry, capabilities=ALL)


@requirement("T249")
async def test_a_state_expires(autojump_clock):
    async with running(greeter(Server("a")), state_ttl=60.0) as replica:
        state = await state_of(replica)
        retry = hello(requestState=state, inputResponses={"two": NAME})
        await trio.sleep(59)
        await replica.result("tools/call", retry, capabilities=ALL)
        await trio.sleep(2)
        assert await replica.error("tools/call", retry, capabilities=ALL) == FROZEN


@requirement("T248")
async def test_every_byte_of_a_state_counts_and_every_failure_is_the_same():
    async with running(greeter(Server("a"))) as replica:
        state = await state_of(replica)
        raw = base64.urlsafe_b64decode(state)
        tampered = [
            base64.urlsafe_b64encode(raw[:i] + bytes([raw[i] ^ 1]) + raw[i + 1 :]).decode() for i in range(len(raw))
        ]
        letters = [state[:i] + ("A" if state[i] != "A" else "B") + state[i + 1 :] for i in range(len(state))]
        forms = [
            "",
            "x",
            "=",
            "!" + state,
            state + "A",
            state + "\n",
            " " + state,
            state.rstrip("=") + "=" * 3,
            state.replace("-", "+").replace("_", "/") + "",
            state[:-1],
            state[: len(state) // 2],
            state * 2,
            state.swapcase(),
            "ü" + state,
            "\x00",
            "A" * 100_000,
        ]
        for text in {*tampered, *letters, *forms} - {state}:
            error = await replica.error("tools/call", hello(requestState=text), capabilities=ALL)
            assert error == FROZEN, text
        await replica.result("tools/call", hello(requestState=state, inputResponses={"two": NAME}), capabilities=ALL)


@requirement("T248", "T249")
async def test_what_a_user_said_cannot_be_read_from_the_state():
    async with running(greeter(Server("a"))) as replica:
        raw = base64.urlsafe_b64decode(await state_of(replica))
        assert b"Ada" not in raw
        assert base64.urlsafe_b64decode(await state_of(replica)) != raw
