"""The methods of both eras: one function each, and the tables that say which era has which."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from mcpd.errors import INVALID_PARAMS, METHOD_NOT_FOUND, ProtocolError
from mcpd.protocol import requests
from mcpd.protocol.requests import decode_params
from mcpd.protocol.revisions import MODERN
from mcpd.protocol.types import CompleteResult, Completion
from mcpd.server.background import as_task
from mcpd.server.offer import CacheHint
from mcpd.server.principal import check_scopes
from mcpd.server.resources import not_found
from mcpd.server.rounds import Rounds
from mcpd.server.skills import get_skill, list_skills, read_directory

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcpd.server.call import Call
    from mcpd.server.context import Context
    from mcpd.server.offer import Offer
    from mcpd.server.prompts import PromptEntry
    from mcpd.server.resources import ResourceEntry

_EMPTY: Final = msgspec.Raw(b"{}")
_BRACE: Final = 0x7B
Handler: TypeAlias = "Callable[[Offer, Call, Context], Awaitable[Any]]"
"""Returns the result: a Struct of ours, a dict, or encoded already."""


async def ping(offer: Offer, call: Call, context: Context) -> Any:
    """Nothing, promptly (basic/utilities/ping)."""
    return _EMPTY


async def discover(offer: Offer, call: Call, context: Context) -> Any:
    """What the server speaks and offers (2026-07-28, server/discover)."""
    result: dict[str, Any] = {"supportedVersions": list(MODERN), "capabilities": offer.capabilities(call.revision)}
    if offer.server.instructions is not None:
        result["instructions"] = offer.server.instructions
    return result | offer.list_extra(call.revision)


async def list_tools(offer: Offer, call: Call, context: Context) -> Any:
    """A page of the tools (server/tools)."""
    return offer.tools.page(decode_params(requests.ListParams, call.params).cursor, call.revision)


async def list_prompts(offer: Offer, call: Call, context: Context) -> Any:
    """A page of the prompts (server/prompts)."""
    return offer.prompts.page(decode_params(requests.ListParams, call.params).cursor, call.revision)


async def list_resources(offer: Offer, call: Call, context: Context) -> Any:
    """A page of the resources (server/resources)."""
    return offer.resources.page(decode_params(requests.ListParams, call.params).cursor, call.revision)


async def list_templates(offer: Offer, call: Call, context: Context) -> Any:
    """A page of the resource templates (server/resources)."""
    return offer.templates.page(decode_params(requests.ListParams, call.params).cursor, call.revision)


async def call_tool(offer: Offer, call: Call, context: Context) -> Any:
    """Run a tool (server/tools)."""
    params = call.tool_params or decode_params(requests.CallToolParams, call.params)
    tool = offer.tool(params.name)
    if tool is None:
        raise ProtocolError(INVALID_PARAMS, f"Unknown tool: {params.name}")
    if tool.scopes:
        check_scopes(call, tool.scopes)
    arguments = params.arguments
    if memoryview(arguments)[0] != _BRACE:
        if bytes(arguments) != b"null":
            raise ProtocolError(INVALID_PARAMS, "arguments must be an object")
        arguments = requests.NO_ARGUMENTS
    if (tool.task is not None or params.task) and offer.tasks is not None and as_task(offer, call, tool, params):
        return await offer.tasks.start(call, params, later=tool.task_later)
    if call.background is None or tool.task_later:
        _may_ask(offer, call, params)
    meter = offer.meter
    if meter is None:
        return await tool.call(call, context, arguments, offer.threads)
    if tool.name not in meter.tools:
        meter.keep_tools(offer.server.tools)
    meter.tools[tool.name] += 1
    try:
        result = await tool.call(call, context, arguments, offer.threads)
    except ProtocolError:
        meter.tool_failures[tool.name] += 1
        raise
    if result.is_error:
        meter.tool_failures[tool.name] += 1
    return result


async def read_resource(offer: Offer, call: Call, context: Context) -> Any:
    """Read a resource (server/resources)."""
    params = decode_params(requests.ReadResourceParams, call.params)
    uri = params.uri
    found = offer.resource(uri)
    if found is None:
        raise not_found(uri, call.revision)
    entry, values = found
    check_scopes(call, entry.scopes)
    _may_ask(offer, call, params)
    result = await entry.read(call, context, uri, values, offer.threads)
    if not call.revision.modern:
        result.ttl_ms = result.cache_scope = result.result_type = None
        return result
    # What was made of a user's answers is for nobody else, and is to be asked for again, whatever its author says;
    # and so is what needs scopes, unless its author says otherwise.
    told = not isinstance(params.input_responses, msgspec.UnsetType) or bool(params.request_state)
    ttl_ms, scope = CacheHint() if told or entry.scopes else offer.cache
    if told or result.ttl_ms is None:
        result.ttl_ms = ttl_ms
    if told or result.cache_scope is None:
        result.cache_scope = scope
    return result


async def get_prompt(offer: Offer, call: Call, context: Context) -> Any:
    """Render a prompt (server/prompts)."""
    params = decode_params(requests.GetPromptParams, call.params)
    prompt = offer.server.prompts.get(params.name)
    if prompt is None:
        raise ProtocolError(INVALID_PARAMS, f"Unknown prompt: {params.name}")
    check_scopes(call, prompt.scopes)
    _may_ask(offer, call, params)
    return await prompt.get(call, context, params.arguments or {}, offer.threads)


async def complete_argument(offer: Offer, call: Call, context: Context) -> Any:
    """Suggest values for an argument (server/utilities/completion)."""
    if not offer.server.completions:
        raise ProtocolError(METHOD_NOT_FOUND, "This server has no completions")
    params = decode_params(requests.CompleteParams, call.params)
    ref, argument = params.ref, params.argument
    described: PromptEntry | ResourceEntry | None
    known: tuple[str, ...] | None
    if isinstance(ref, requests.PromptReference):
        key, described = ref.name, (prompt := offer.server.prompts.get(ref.name))
        known = None if prompt is None else prompt.argument_names
    else:
        key, template = ref.uri, offer.server.templates.get(ref.uri) or offer.server.resources.get(ref.uri)
        described, known = template, None if template is None else tuple(template.template.variables)
    if described is None or known is None:
        raise ProtocolError(INVALID_PARAMS, f"There is no {key!r} to complete for")
    check_scopes(call, described.scopes)
    if argument.name not in known:
        raise ProtocolError(INVALID_PARAMS, f"{key!r} has no argument {argument.name!r}")
    entry = offer.server.completions.get((key, argument.name))
    if entry is None:
        return CompleteResult(completion=Completion(values=[], total=0, has_more=False))
    given = (params.context.arguments if params.context is not None else None) or {}
    return await entry.complete(context, argument.value, given, offer.threads)


async def set_level(offer: Offer, call: Call, context: Context) -> Any:
    """Set the session's log level (server/utilities/logging)."""
    level = decode_params(requests.SetLevelParams, call.params).level
    if call.session is not None:
        await call.session.set_log_level(level)
    return _EMPTY


async def subscribe(offer: Offer, call: Call, context: Context) -> Any:
    """Tell the session of updates (server/resources)."""
    uri = decode_params(requests.UriParams, call.params).uri
    found = offer.resource(uri)
    if found is None:
        raise not_found(uri, call.revision)
    check_scopes(call, found[0].scopes)
    if call.session is not None:
        await call.session.subscribe(uri)
    return _EMPTY


async def unsubscribe(offer: Offer, call: Call, context: Context) -> Any:
    """No longer tell it (server/resources)."""
    uri = decode_params(requests.UriParams, call.params).uri
    if call.session is not None:
        await call.session.unsubscribe(uri)
    return _EMPTY


def _may_ask(offer: Offer, call: Call, params: requests.InputParams) -> None:
    # "Servers MAY send InputRequiredResult responses on" these three requests (2026-07-28, basic/patterns/mrtr).
    if call.revision.modern:
        if params.input_responses is msgspec.UNSET and params.request_state is msgspec.UNSET:
            call.first_round = offer.first_round  # mostly nothing is asked
        else:
            call.rounds = Rounds(call, params, offer.sealer)


_BOTH: Final[dict[str, Handler]] = {
    "tools/list": list_tools,
    "tools/call": call_tool,
    "prompts/list": list_prompts,
    "prompts/get": get_prompt,
    "resources/list": list_resources,
    "resources/templates/list": list_templates,
    "resources/read": read_resource,
    "completion/complete": complete_argument,
}
LEGACY_METHODS: Final[dict[str, Handler]] = _BOTH | {
    "ping": ping,
    "logging/setLevel": set_level,
    "resources/subscribe": subscribe,
    "resources/unsubscribe": unsubscribe,
}
MODERN_METHODS: Final[dict[str, Handler]] = _BOTH | {
    "server/discover": discover,
    "skills/list": list_skills,
    "skills/get": get_skill,
    "resources/directory/read": read_directory,
}
