"""OpenTelemetry: a server span for each MCP request, by the semantic conventions for MCP.

Only imported when tracing is on. Spans go to the global tracer provider, which the application sets up, or
``opentelemetry-instrument`` for it; without one nothing is recorded. A handler runs inside its request's span, so what
it traces itself is below that.

Of sessions a hash is told, against the letter of the conventions: whoever knows a session's ID may use it. Neither
arguments nor results are told. ``subscriptions/listen``, which lasts as long as its client wants, has no span, and
neither has what is refused before it is known what it asks for.

Source: semantic-conventions-genai, docs/gen-ai/mcp.md, "Server".
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from mcpd.errors import ProtocolError, SettingError
from mcpd.protocol import requests
from mcpd.protocol.revisions import negotiate
from mcpd.server.call import hashed
from mcpd.server.dispatch import Dispatcher

try:
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanKind, StatusCode
except ImportError as exc:  # pragma: no cover - the tests have it
    raise SettingError("tracing needs OpenTelemetry: install trio-mcpd[tracing]") from exc

if TYPE_CHECKING:
    from collections.abc import Generator

    from mcpd.protocol.headers import Headers
    from mcpd.protocol.jsonrpc import Message
    from mcpd.server.call import Call
    from mcpd.server.dispatch import Answer

_OTHER: Final = "_OTHER"
"""What stands for a method, tool or prompt that does not exist: clients must not make up names of spans."""
_FIELDS: Final = ("traceparent", "tracestate", "baggage")
_RESOURCES: Final = frozenset({"resources/read", "resources/subscribe", "resources/unsubscribe"})


class _Params(msgspec.Struct):
    name: Any = None
    uri: Any = None
    meta: Any = msgspec.field(name="_meta", default=None)


class _Error(msgspec.Struct):
    message: str


class _Result(msgspec.Struct):
    is_error: bool = msgspec.field(name="isError", default=False)


class _Response(msgspec.Struct):
    error: _Error | None = None
    result: _Result | None = None


_responses: Final = msgspec.json.Decoder(_Response)
_params: Final = msgspec.json.Decoder(_Params)


class TracedDispatcher(Dispatcher):
    """A dispatcher whose every answer has a span."""

    async def answer(self, call: Call) -> Answer | None:
        """As `Dispatcher.answer`, inside a span."""
        params = _read(call.params)
        method = call.method if self.knows(call.method, call.revision) else _OTHER
        attributes = _attributes(method, call.id) | {"mcp.protocol.version": call.revision.name}
        if call.session is not None and call.headers is not None:
            attributes["mcp.session.id"] = hashed(call.session.id)
        name = method
        if method == "tools/call":
            target = params.name if isinstance(params.name, str) and self.offer.tool(params.name) else _OTHER
            attributes |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": target}
            name = f"{method} {target}"
        elif method == "prompts/get":
            known = isinstance(params.name, str) and self.server.prompts.get(params.name) is not None
            attributes["gen_ai.prompt.name"] = target = params.name if known else _OTHER
            name = f"{method} {target}"
        elif method in _RESOURCES and isinstance(params.uri, str):
            attributes["mcp.resource.uri"] = params.uri
        with _span(name, attributes, params.meta, call.headers) as span:
            try:
                answer = await super().answer(call)
            except BaseException:
                _fail(span, "cancelled")
                raise
            if span.is_recording():
                _tell(span, method, answer)
            return answer


@contextmanager
def initialization(message: Message, headers: Headers | None) -> Generator[None]:
    """The span of an ``initialize``, which no dispatcher answers."""
    params = _read(message.params)
    with _span("initialize", _attributes("initialize", message.id), params.meta, headers) as span:
        try:
            asked = requests.decode_params(requests.InitializeParams, message.params)
            span.set_attribute("mcp.protocol.version", negotiate(asked.protocol_version).name)
            yield
        except ProtocolError as exc:
            _fail(span, str(exc.code), exc.message)
            raise


def _attributes(method: str, request_id: object) -> dict[str, str]:
    return {"mcp.method.name": method, "jsonrpc.request.id": str(request_id)}


@contextmanager
def _span(name: str, attributes: dict[str, str], meta: Any, headers: Headers | None) -> Generator[Span]:
    parent, links = _parent(meta, headers)
    if headers is None:
        attributes["network.transport"] = "pipe"
    else:
        attributes |= {"network.transport": "tcp", "network.protocol.name": "http"}
    # Asked for each time: the application may set the provider after it has been loaded.
    tracer = trace.get_tracer("mcpd")
    span = tracer.start_span(name, parent, SpanKind.SERVER, attributes, links)
    with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        yield span


def _parent(meta: Any, headers: Headers | None) -> tuple[Context | None, list[Link]]:
    """The context that the request is part of, and a link to that of its HTTP request if that is another one.

    "MCP server instrumentation SHOULD, by default, use context extracted from MCP params._meta as a parent for MCP
    server span and SHOULD link current ambient context, if it's present."
    """
    around = trace.get_current_span().get_span_context()
    carried: dict[str, str] = {}
    if headers is not None and not around.is_valid:
        found = ((name, headers.get(name.encode())) for name in _FIELDS)
        carried = {name: value for name, value in found if value is not None}
    outer = propagate.extract(carried, context=Context()) if carried else None
    if outer is not None:
        around = trace.get_current_span(outer).get_span_context()
    told: dict[str, str] = {}
    if isinstance(meta, dict):
        given = cast("dict[str, Any]", meta)
        told = {name: given[name] for name in _FIELDS if isinstance(given.get(name), str)}
    if told:
        inner = propagate.extract(told, context=Context())
        if trace.get_current_span(inner).get_span_context().is_valid:
            return inner, [Link(around)] if around.is_valid else []
    return outer, []


def _tell(span: Span, method: str, answer: Answer | None) -> None:
    """What became of the request."""
    if answer is None:
        _fail(span, "cancelled")
    elif answer.code:
        error = _responses.decode(answer.body).error
        span.set_attribute("rpc.response.status_code", str(answer.code))
        _fail(span, str(answer.code), None if error is None else error.message)
    elif method == "tools/call":
        result = _responses.decode(answer.body).result
        if result is not None and result.is_error:
            _fail(span, "tool_error")


def _fail(span: Span, kind: str, message: str | None = None) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(StatusCode.ERROR, message)


def _read(params: msgspec.Raw) -> _Params:
    try:
        return _params.decode(params)
    except msgspec.MsgspecError:
        return _Params()  # the dispatcher says what is wrong with them
