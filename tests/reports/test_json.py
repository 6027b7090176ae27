"""JSON in the field: request ids, and text that is no JSON although some parser takes it."""

import json
import time

import pytest

from tests.harness import modern_request, rpc
from tests.reports.rig import Rig


@pytest.mark.parametrize(
    "id_", ["1", 1, 0, -1, "", "0", "é", "\u2028", 9_007_199_254_740_993, 2**63 - 1, -(2**63)], ids=repr
)
async def test_r59_an_id_comes_back_as_it_was(clock, rig: Rig, front: str, id_):
    """The id "1" came back as 1, and every id as 0."""
    async with rig.serving(front=front) as http:
        session = await http.initialize()
        for response in (
            await session.post("tools/list", id=id_),
            await session.post("no/such/method", id=id_),
            await session.call("steps", {"count": 1}, progress=1, id=id_),
            await session.call("echo", {"text": "x"}, id=id_, headers={"Accept": "text/event-stream"}),
            await http.modern("tools/list", id=id_),
            await http.modern("no/such/method", id=id_),
            await http.modern("tools/list", id=id_, headers={"Mcp-Method": None}),
        ):
            assert response.answer["id"] == id_
            assert type(response.answer["id"]) is type(id_)


@pytest.mark.parametrize("id_", [None, True, False, 1.5, 1.0, [], {}, [1]], ids=repr)
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_r59_what_is_no_id_is_refused(clock, rig: Rig, front: str, id_, era: str):
    """A request with the id null was taken for a notification: 202, and the client waited."""
    async with rig.serving(front=front) as http:
        session = await http.initialize()
        params = {"name": "echo", "arguments": {"text": "x"}}
        if era == "legacy":
            response = await session.post("tools/call", params, id=id_)
        else:
            request = modern_request("tools/call", params)
            request["json"]["id"] = id_
            response = await http.request("POST", **request)
        assert response.status == 400
        assert response.json["error"]["code"] == -32600
        assert response.json["id"] is None
        assert rig.ran == []


async def test_r59_without_an_id_there_is_no_answer(clock, rig: Rig, front: str):
    """And what has no id is a notification."""
    async with rig.serving(front=front) as http:
        session = await http.initialize()
        for method in ("notifications/initialized", "notifications/unheard_of", "tools/list"):
            response = await session.notify(method)
            assert (response.status, response.body) == (202, b"")


def call_with(arguments: str) -> bytes:
    """A call of echo with these arguments as they are."""
    frame = json.dumps(rpc("tools/call", {"name": "echo", "arguments": "HERE"}, id=1))
    return frame.replace('"HERE"', arguments).encode()


NO_JSON = {
    "NaN": call_with('{"text": "x", "n": NaN}'),
    "Infinity": call_with('{"text": "x", "n": Infinity}'),
    "-Infinity": call_with('{"text": "x", "n": -Infinity}'),
    "a number too large": call_with('{"text": "x", "n": 1e999}'),
    "the same key twice": call_with('{"text": "x", "text": "y"}'),
    "the same key twice, deep down": call_with('{"text": "x", "n": [[{"a": {"b": 1, "b": 2}}]]}'),
    "the same key twice, once escaped": call_with('{"text": "x", "\\u0074ext": "y"}'),
    "the method twice": b'{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list"}',
    "brackets without end": call_with("[" * 100_000 + "]" * 100_000),
    "braces without end": call_with('{"a":' * 50_000 + "1" + "}" * 50_000),
    "open brackets": b"[" * 100_000,
    "a comment": call_with('{"text": "x" /* y */}'),
    "single quotes": call_with("{'text': 'x'}"),
    "a comma at the end": call_with('{"text": "x",}'),
    "something behind": call_with('{"text": "x"}') + b" {}",
    "a lone surrogate": call_with('{"text": "\\ud800"}'),
    "no UTF-8": call_with('{"text": "x"}').replace(b"x", b"\xff"),
    "UTF-16": call_with('{"text": "x"}').decode().encode("utf-16"),
    "a control character": call_with('{"text": "a\nb"}'),
    "nothing": b"",
    "blanks": b"  \n ",
}


@pytest.mark.parametrize("what", NO_JSON)
async def test_r61_what_is_no_json_is_refused_at_once(clock, rig: Rig, front: str, what: str):
    """Python's own parser takes NaN and doubled keys; what reached the handler could not be sent on."""
    async with rig.serving(front=front) as http:
        session = await http.initialize()
        began = time.perf_counter()
        response = await http.request("POST", headers=session.headers(), body=NO_JSON[what])
        took = time.perf_counter() - began
        assert response.status == 400
        assert response.json["error"]["code"] in {-32700, -32600}
        assert response.json["id"] in {None, 1}
        assert rig.ran == []
        assert took < 0.5  # a tenth of that alone; the machine may be busy


@pytest.mark.parametrize("digits", [20, 5_000, 400_000])
async def test_r61_a_number_of_many_digits_is_refused_at_once(clock, rig: Rig, front: str, digits: int):
    """Reading a number of n digits takes n squared steps: a body of 400 KB stopped a server."""
    async with rig.serving(front=front) as http:
        session = await http.initialize()
        body = call_with('{"text": "x", "n": %s}' % ("9" * digits))
        began = time.perf_counter()
        response = await http.request("POST", headers=session.headers(), body=body)
        took = time.perf_counter() - began
        assert took < 0.5
        if digits > 20:
            assert response.status == 400
            assert response.json["error"]["code"] in {-32700, -32600}
        else:
            assert response.status < 500


NUMBERS = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_r61_a_tool_that_returns_no_number(clock, rig: Rig, front: str, number: str, era: str):
    """What a tool returned as NaN went out as NaN, which no client can read."""

    @rig.server.tool
    async def compute() -> float:
        return NUMBERS[number]

    @rig.server.tool
    async def several() -> dict[str, list[float]]:
        return {"values": [1.0, NUMBERS[number]]}

    async with rig.serving(front=front, allow_errors=True) as http:
        session = await http.initialize()
        for tool in ("compute", "several"):
            response = await session.call(tool) if era == "legacy" else await http.call(tool)

            def refuse(name: str) -> None:
                raise AssertionError(f"{name} is no JSON")

            answer = json.loads(response.body, parse_constant=refuse)
            assert "result" in answer or answer["error"]["code"] == -32603
