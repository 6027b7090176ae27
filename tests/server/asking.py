"""Questions of a modern call, and their answers: what the tests of rounds share."""

from typing import Any

import msgspec
import trio
from mcp_types import methods

from mcpd import Context, Server
from tests.server.peer import Answerer, Peer

ALL = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}
KEYS = ("0123456789abcdef-first",)
NAME: dict[str, Any] = {"action": "accept", "content": {"name": "Ada"}}
ROOTS: dict[str, Any] = {"roots": [{"uri": "file:///a"}]}
SAMPLED: dict[str, Any] = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "hi"}}
FROZEN = {"code": -32602, "message": "Invalid requestState: call again without it"}


class Name(msgspec.Struct):
    name: str


def one_tool() -> Server:
    """A server whose tool asks for a name, for a word of the model with it, and for roots."""
    server = Server("s")

    @server.tool
    async def hello(ctx: Context, greeting: str = "Hello") -> str:
        answer = await ctx.elicit("Who are you?", Name, key="who")
        if answer.content is None:
            return answer.action
        said = await ctx.sample(f"Greet {answer.content.name}", max_tokens=10)
        roots = await ctx.roots()
        return f"{greeting} {answer.content.name}, {said.text}, {roots[0].uri}"

    return server


def hello(**more: Any) -> dict[str, Any]:
    return {"name": "hello", "arguments": {"greeting": "Hi"}, **more}


def answering(answer: dict[str, Any]) -> Answerer:
    async def answerer(params: dict[str, Any]) -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        return answer

    return answerer


ANSWERERS = {
    "elicitation/create": answering(NAME),
    "sampling/createMessage": answering(SAMPLED),
    "roots/list": answering(ROOTS),
}


def text_of(result: dict[str, Any]) -> str:
    assert result.get("resultType", "complete") == "complete", result
    text: str = result["content"][0]["text"]
    return text


def asked(result: dict[str, Any]) -> dict[str, Any]:
    """What a modern server asks: every question checked by the official types, and nothing a client could cache."""
    assert result["resultType"] == "input_required", result
    assert not {"ttlMs", "cacheScope", "content", "messages", "contents"} & result.keys()
    assert result.get("inputRequests") or "requestState" in result
    requests: dict[str, Any] = result["inputRequests"]
    for request in requests.values():
        assert "id" not in request
        assert "jsonrpc" not in request
        methods.parse_server_request(request["method"], "2025-11-25", _as_legacy(request))
    return requests


def _as_legacy(request: dict[str, Any]) -> dict[str, Any]:
    # The official types have the requests of 2025-11-25 only; a URL elicitation had an id then.
    params: dict[str, Any] = dict(request.get("params", {}))
    return params | {"elicitationId": "1"} if params.get("mode") == "url" else params


async def to_the_end(peer: Peer, method: str, params: dict[str, Any], answers: dict[str, Any]) -> dict[str, Any]:
    """Call and call again, answering each method as *answers* says; the result."""
    while True:
        result = await peer.result(method, params)
        if result.get("resultType") != "input_required":
            return result
        given = {key: answers[request["method"]] for key, request in asked(result).items()}
        params = {key: value for key, value in params.items() if key not in {"requestState", "inputResponses"}}
        params["inputResponses"] = given
        if "requestState" in result:
            params["requestState"] = result["requestState"]


def greeter(server: Server) -> Server:
    @server.tool
    async def hello(ctx: Context, greeting: str = "Hello") -> str:
        first = await ctx.elicit("Who?", Name, key="one")
        await ctx.elicit("Sure?", Name, key="two")
        return f"{greeting} {first.content.name if first.content else ''} for {ctx.principal and ctx.principal.subject}"

    @server.tool
    async def other(ctx: Context, greeting: str = "Hello") -> str:
        return f"{greeting} {(await ctx.elicit('Who?', Name, key='one')).action}"

    @server.prompt(name="hello")
    async def prompt(ctx: Context, greeting: str = "Hello") -> str:
        return f"{greeting} {(await ctx.elicit('Who?', Name, key='one')).action}"

    return server


async def state_of(replica: Any, *, principal: Any = None, **more: Any) -> str:
    """A state that holds the answer to the first question."""
    params = hello(inputResponses={"one": NAME}, **more)
    result = await replica.result("tools/call", params, principal=principal, capabilities=ALL)
    assert list(result["inputRequests"]) == ["two"]
    state: str = result["requestState"]
    return state
