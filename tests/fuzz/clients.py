"""Clients that mix eras, say what is not quite right, go away at any time, and check each answer."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import trio

from mcpd.endpoint.exchange import MAX_HEAD
from mcpd.protocol.envelope import NAMED_BY
from tests.fuzz.hostile import mutated, spoiled, written
from tests.harness import LEGACY, Client, Connection, ConnectionLost, Stream, header_text, modern_request, rpc
from tests.harness.messages import encode_request

WITHIN: Final = 60.0
"""Seconds in which a server must answer, and end what it has begun, on a machine with other things to do."""
_INTERNAL: Final = -32603
_CAPABILITIES: Final = {"elicitation": {}, "sampling": {}, "roots": {}}
_REVISIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", LEGACY)
_TASKS: Final = {"extensions": {"io.modelcontextprotocol/tasks": {}}}

REQUESTS: Final[list[tuple[str, dict[str, Any]]]] = [
    ("ping", {}),
    ("tools/list", {"cursor": "dG9vbHM6MQ"}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("prompts/list", {}),
    ("server/discover", {}),
    ("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}),
    ("tools/call", {"name": "echo", "arguments": {"value": {"a": [1, {"b": None}]}}, "_meta": {"progressToken": "t"}}),
    (
        "tools/call",
        {"name": "visit", "arguments": {"place": {"x": 1, "tags": ["a"], "inside": {"x": 2}}, "when": {"k": 1}}},
    ),
    ("tools/call", {"name": "mirrored", "arguments": {"region": "é", "number": 7}}),
    (
        "tools/call",
        {"name": "tree", "arguments": {"value": 1, "number": 1.5, "left": {"right": {"value": []}}, "x-a": "b"}},
    ),
    ("tools/call", {"name": "count", "arguments": {"to": 3}, "_meta": {"progressToken": 1}}),
    ("tools/call", {"name": "wait", "arguments": {"seconds": 0.05}}),
    ("tools/call", {"name": "ask", "arguments": {}}),
    ("tools/call", {"name": "ask", "inputResponses": {"first": {"action": "accept", "content": {"name": "A"}}}}),
    ("tools/call", {"name": "keep", "arguments": {"key": "k", "value": {"v": 1}}}),
    ("tools/call", {"name": "job", "arguments": {"seconds": 0.05}, "task": {"ttl": 1000}}),
    ("tools/call", {"name": "change", "arguments": {}}),
    ("resources/read", {"uri": "note://1"}),
    ("resources/read", {"uri": "file://a%20b/c/d.txt?line=1&column=2"}),
    ("resources/subscribe", {"uri": "note://1"}),
    ("resources/unsubscribe", {"uri": "note://1"}),
    ("prompts/get", {"name": "greet", "arguments": {"name": "Ada", "tone": "cold"}}),
    (
        "completion/complete",
        {
            "ref": {"type": "ref/prompt", "name": "greet"},
            "argument": {"name": "name", "value": "A"},
            "context": {"arguments": {"tone": "kind"}},
        },
    ),
    (
        "completion/complete",
        {
            "ref": {"type": "ref/resource", "uri": "file://{name}/{+path}{?line,column}"},
            "argument": {"name": "name", "value": ""},
        },
    ),
    ("logging/setLevel", {"level": "debug"}),
    ("tasks/list", {}),
    ("tasks/get", {"taskId": "x"}),
    ("tasks/cancel", {"taskId": "x"}),
    ("tasks/update", {"taskId": "x", "inputResponses": {}}),
    ("subscriptions/listen", {"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["note://1"]}}),
]
NOTIFICATIONS: Final[list[tuple[str, dict[str, Any]]]] = [
    ("notifications/initialized", {}),
    ("notifications/cancelled", {"requestId": 1, "reason": "r"}),
    ("notifications/progress", {"progressToken": 1, "progress": 0.5}),
    ("notifications/roots/list_changed", {}),
]


def _fitting(message: Any) -> dict[str, str]:
    """The headers that mirror what a mutated message says, as far as they can."""
    method = message.get("method") if isinstance(message, dict) else None
    params = message.get("params") if isinstance(message, dict) else None
    fields: dict[str, str] = {}
    if isinstance(method, str) and method.isascii() and method.isprintable():
        fields["Mcp-Method"] = method
    member = NAMED_BY.get(method, "") if isinstance(method, str) else ""
    name = params.get(member) if isinstance(params, dict) else None
    if isinstance(name, str):
        fields["Mcp-Name"] = header_text(name)
    return fields


class Outcomes:
    """What all clients of one server have seen."""

    def __init__(self) -> None:
        self.statuses: Counter[str] = Counter()
        self.actions: Counter[str] = Counter()
        self.wrong: list[str] = []
        """What must not happen."""
        self.slowest = 0.0


class Fuzzer:
    """One client. Each of its steps is one request, or what becomes of one."""

    def __init__(self, http: Client, outcomes: Outcomes, source: random.Random) -> None:
        self.http = http
        self.outcomes = outcomes
        self.source = source
        self.sessions: list[tuple[str, str]] = []
        """IDs and revisions; some have ended."""
        self.event_ids = ["0.1", "x.1"]
        self._kept: Connection | None = None
        self._said = b""
        self._ended = ""
        self._head = 0
        """Bytes of the header that was sent last."""

    async def run(self, until: float) -> None:
        """Go on until that time of Trio's clock."""
        steps: dict[Callable[[], Any], int] = {
            self.initialize: 3,
            self.legacy: 30,
            self.modern: 30,
            self.batch: 2,
            self.get: 4,
            self.delete: 1,
            self.answer: 2,
            self.broken: 3,
        }
        try:
            while trio.current_time() < until:
                step = self.source.choices(list(steps), list(steps.values()))[0] if self.sessions else self.initialize
                self.outcomes.actions[step.__name__] += 1
                began = trio.current_time()
                try:
                    await step()
                except ConnectionLost as exc:
                    if self._head < MAX_HEAD:  # else a front says 431 while the rest of the request is still coming
                        self.wrong(f"the connection was lost ({exc})")
                except trio.TooSlowError:
                    self.wrong(f"{step.__name__} has not ended after {WITHIN:g} s")
                except AssertionError as exc:
                    self.wrong(f"no decent answer: {exc}")
                self.outcomes.slowest = max(self.outcomes.slowest, trio.current_time() - began)
        finally:
            self._leave()

    def wrong(self, what: str) -> None:
        """Note what must not happen, with what was said before it."""
        self.outcomes.wrong.append(f"{what}, after {self._said[:3000]!r}")

    # ----- What it does

    async def initialize(self) -> None:
        """Open a session, perhaps."""
        revision = self.source.choice(_REVISIONS)
        capabilities: dict[str, Any] = dict(_CAPABILITIES) if self.source.random() < 0.7 else {}
        params = {
            "protocolVersion": revision,
            "capabilities": capabilities,
            "clientInfo": {"name": "f", "version": "1"},
        }
        mutate = 0.5 if self.sessions else 0.0
        response = await self.post(rpc("initialize", params, id=0), {}, mutate=mutate)
        if response is not None and "mcp-session-id" in response.headers:
            self.sessions = [*self.sessions[-5:], (response.headers["mcp-session-id"], revision)]
            if self.source.random() < 0.8:
                await self.post(rpc("notifications/initialized"), self.fields(), whole=True)

    async def legacy(self) -> None:
        """A request or notification of a session."""
        if self.source.random() < 0.15:
            method, params = self.source.choice(NOTIFICATIONS)
            message = rpc(method, params)
        else:
            method, params = self.source.choice(REQUESTS)
            message = rpc(method, params, id=self.source.choice((1, 1, "a", 2**53, -1, "é" * 100)))
        await self.post(message, self.fields())

    async def modern(self) -> None:
        """A request without a session. Most have headers that fit; else the first check would refuse them all."""
        method, params = self.source.choice(REQUESTS)
        if self.source.random() < 0.3:
            params = {**params, "requestState": "AAAA", "inputResponses": {"first": {"action": "decline"}}}
        request = modern_request(method, params, id=self.source.choice((1, "a")), capabilities=_CAPABILITIES | _TASKS)
        message = mutated(request["json"], self.source)
        headers = dict(request["headers"])
        if self.source.random() < 0.7:
            headers |= _fitting(message)
        if params.get("name") == "mirrored":
            headers |= {"Mcp-Param-Region": "=?base64?w6k=?=", "Mcp-Param-Number": "7"}
        await self.post(message, headers, mutate=0.0)

    async def batch(self) -> None:
        """Several messages at once, which one revision knows."""
        messages = [rpc(*self.source.choice(REQUESTS), id=number) for number in range(self.source.randrange(4))]
        messages += [rpc(*self.source.choice(NOTIFICATIONS))]
        await self.post(messages, self.fields())

    async def get(self) -> None:
        """The standalone stream, or the rest of another; it is left soon."""
        fields = self.fields() | {"Accept": "text/event-stream"}
        if self.source.random() < 0.6:
            last = self.source.choice(
                [*self.event_ids, "\u00b2.1", "." * 50, "0.-1", "0.99999999999999999999", "a.b.c"]
            )
            fields["Last-Event-ID"] = last
        self._said = repr(fields).encode()
        async with self.http.connect() as connection:
            await connection.send("GET", headers=self.spoil(fields))
            await self._look(await connection.stream(within=WITHIN), leave=self.source.random() * 0.5)

    async def delete(self) -> None:
        """End a session; what it is asked for next is an error, and after that it is forgotten."""
        fields = self.fields()
        self._ended = fields["Mcp-Session-Id"]
        self._said = repr(fields).encode()
        response = await self.http.request("DELETE", headers=fields, within=WITHIN)
        self.judge(response.status, response.headers, response.body, None)

    async def answer(self) -> None:
        """Answer what nobody has asked."""
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": self.source.choice((1, "x", "A" * 16))}
        if self.source.random() < 0.5:
            message["result"] = {"action": "accept", "content": {"name": "Mallory"}}
        else:
            message["error"] = {"code": -1, "message": "no", "data": None}
        await self.post(message, self.fields())

    async def broken(self) -> None:
        """Part of a request, and then nothing more."""
        data = encode_request("POST", headers=self.fields(), json=rpc("tools/call", {"name": "wait"}, id=1))
        self._said = data
        connection = self.http.connect()
        with suppress(ConnectionLost):
            await connection.send_bytes(data[: self.source.randrange(len(data))])
            if self.source.random() < 0.5:
                await trio.sleep(self.source.random() * 0.02)
        connection.leave(reset=self.source.random() < 0.5)

    # ----- Requests

    def fields(self) -> dict[str, str]:
        """What a client of a session sends with each request; seldom of one that is not there."""
        if not self.sessions or self.source.random() < 0.03:
            return {"Mcp-Session-Id": self.source.choice(("A" * 24, "x", "=" * 24, "A" * 2000))}
        session, revision = self.sessions[-1] if self.source.random() < 0.9 else self.source.choice(self.sessions)
        return {"Mcp-Session-Id": session, "MCP-Protocol-Version": revision}

    def spoil(self, fields: Mapping[str, str]) -> list[tuple[str, str | bytes | None]]:
        """The fields, seldom with something wrong in them."""
        spoiled_fields: list[tuple[str, str | bytes | None]] = list(fields.items())
        if self.source.random() < 0.08:
            name = self.source.choice((*fields, "Accept", "Content-Type", "Origin", "MCP-Protocol-Version", "Mcp-Name"))
            values = (None, "", "x", "*/*;q=0", "null", "2026-07-28", "2025-11-25, 2025-11-25", b"\xff\x80", "y" * 4000)
            spoiled_fields.append((name, self.source.choice(values)))
        if self.source.random() < 0.02:
            spoiled_fields += spoiled_fields[:1]
        self._head = sum(len(name) + len(value or "") for name, value in spoiled_fields)
        return spoiled_fields

    async def post(self, message: Any, fields: Mapping[str, str], *, mutate: float = 0.8, whole: bool = False) -> Any:
        """POST a message with something wrong in it; the response, if it was a whole one."""
        if not whole and self.source.random() < mutate:
            message = mutated(message, self.source)
        whole_body = written(message)
        body = whole_body if whole else spoiled(whole_body, self.source)
        self._said = repr(dict(fields)).encode()[:1000] + body
        sent = message.get("id") if isinstance(message, dict) and body == whole_body else None
        if fields.get("Mcp-Session-Id") == self._ended:
            self.sessions = [each for each in self.sessions if each[0] != self._ended]
        if whole or self.source.random() < 0.7:
            return await self._whole(fields, body, sent)
        await self._streamed(fields, body)
        return None

    async def _whole(self, fields: Mapping[str, str], body: bytes, sent: Any) -> Any:
        if self._kept is None or not self._kept.reusable:
            self._leave()
            self._kept = self.http.connect()
        connection, self._kept = self._kept, None
        # Whatever a stream brings ends by itself: but one of changes ends with the client.
        with trio.move_on_after(1.5) as patience:
            response = await connection.request("POST", headers=self.spoil(fields), body=body, within=WITHIN)
            self.judge(response.status, response.headers, response.body, sent)
            self._kept = connection
            return response
        assert patience.cancelled_caught
        connection.cut()
        return None

    async def _streamed(self, fields: Mapping[str, str], body: bytes) -> None:
        """The same, and go away before the end, or hear it to the end."""
        async with self.http.connect() as connection:
            await connection.send("POST", headers=self.spoil(fields), body=body)
            with trio.move_on_after(0.0 if self.source.random() < 0.3 else 2.0):
                stream = await connection.stream(within=WITHIN)
                await self._look(stream, leave=2.0 if self.source.random() < 0.5 else 0.0)
            if self.source.random() < 0.5:
                connection.cut()

    async def _look(self, stream: Stream, *, leave: float) -> None:
        """Read what comes for *leave* seconds."""
        if stream.headers.get("content-type") != "text/event-stream":
            body = b""
            with trio.fail_after(WITHIN):
                while (piece := await stream.connection.piece()) is not None:
                    body += piece
            self.judge(stream.status, stream.headers, body, None)
            return
        self.outcomes.statuses["stream"] += 1
        with trio.move_on_after(leave):
            while (event := await stream.event(within=WITHIN)) is not None:
                if event.id:
                    self.event_ids = [*self.event_ids[-20:], event.id]
                if event.data:
                    self.judge_message(event.json, None)
                    if "method" in event.json and "id" in event.json and self.source.random() < 0.7:
                        await self._reply(event.json)

    async def _reply(self, question: Any) -> None:
        """Answer a question of the server's, mostly in a way that does not fit."""
        result = {"action": self.source.choice(("accept", "decline", "x")), "content": {"name": "Ada"}}
        await self.post({"jsonrpc": "2.0", "id": question["id"], "result": result}, self.fields())

    def _leave(self) -> None:
        if self._kept is not None:
            self._kept.leave(reset=self.source.random() < 0.2)
            self._kept = None

    # ----- Answers

    def judge(self, status: int, headers: Mapping[str, str], body: bytes, sent: Any) -> None:
        """A response is never the server's fault, and what it says is what JSON-RPC has words for."""
        self.outcomes.statuses[str(status)] += 1
        if status >= 500:
            self.wrong(f"status {status}: {body[:500]!r}")
        elif headers.get("content-type") == "application/json":
            found = json.loads(body)
            for each in found if isinstance(found, list) else [found]:
                self.judge_message(each, None if isinstance(found, list) else sent)
        elif headers.get("content-type") == "text/event-stream":
            pass  # read whole, and judged by the harness as it is read
        elif body:
            self.wrong(f"a body of no known kind: {body[:500]!r}")

    def judge_message(self, message: Any, sent: Any) -> None:
        """One message of the server's; the answer to the request with the id *sent*, if that is known."""
        assert message["jsonrpc"] == "2.0", message
        if "method" in message:
            return
        assert ("result" in message) != ("error" in message), message
        if "error" in message:
            error = message["error"]
            self.outcomes.statuses[f"error {error['code']}"] += 1
            if error["code"] == _INTERNAL:
                self.wrong(f"an internal error: {message}")
            assert "Traceback" not in error["message"], message
        elif message["result"].get("isError") and "internal error" in json.dumps(message["result"]):
            self.wrong(f"a tool failed by itself: {message}")
        if type(sent) in {int, str} and message["id"] is not None:
            assert message["id"] == sent, (message["id"], sent)
