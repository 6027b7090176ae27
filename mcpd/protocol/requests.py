"""The params of the requests a server takes, and the ``_meta`` all of them may carry.

A params struct leaves ``arguments`` undecoded: they are decoded once, straight from the wire, into what the
handler's own signature asks for.
"""

# No `from __future__ import annotations`: msgspec reads these annotations at run time.
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from mcpd.errors import INVALID_PARAMS, ProtocolError
from mcpd.protocol.jsonrpc import MAX_ID
from mcpd.protocol.types import ClientCapabilities, Implementation

_NONE: Final = Raw(b"")
NO_ARGUMENTS: Final = Raw(b"{}")


class Meta(Struct):
    """What mcpd reads of ``_meta``; everything else is the application's (`Context.meta`)."""

    progress_token: int | Annotated[str, msgspec.Meta(max_length=MAX_ID)] | None = field(
        name="progressToken", default=None
    )
    protocol_version: Any = field(name="io.modelcontextprotocol/protocolVersion", default=UNSET)
    client_capabilities: Raw | UnsetType = field(name="io.modelcontextprotocol/clientCapabilities", default=UNSET)
    client_info: Raw | UnsetType = field(name="io.modelcontextprotocol/clientInfo", default=UNSET)
    log_level: Any = field(name="io.modelcontextprotocol/logLevel", default=UNSET)


NO_META: Final = Meta()


class Params(Struct, rename="camel"):
    """The params of any request."""

    meta: Raw = field(name="_meta", default=_NONE)


class InputParams(Params):
    """What the retry of a modern request carries besides (2026-07-28, basic/patterns/mrtr)."""

    input_responses: Raw | UnsetType = UNSET
    request_state: str | UnsetType = UNSET


class InitializeParams(Params, kw_only=True):
    """``initialize``."""

    protocol_version: str = ""
    capabilities: ClientCapabilities
    client_info: Implementation


class CallToolParams(InputParams, kw_only=True):
    """``tools/call``."""

    name: str
    arguments: Raw = NO_ARGUMENTS
    task: Raw | UnsetType = UNSET


class ReadResourceParams(InputParams, kw_only=True):
    """``resources/read``."""

    uri: str


class GetPromptParams(InputParams, kw_only=True):
    """``prompts/get``."""

    name: str
    arguments: dict[str, str] | None = None


class ListParams(Params):
    """The lists."""

    cursor: str | None = None


class UriParams(Params, kw_only=True):
    """``resources/subscribe`` and ``resources/unsubscribe``."""

    uri: str


class SetLevelParams(Params, kw_only=True):
    """``logging/setLevel``."""

    level: Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


class PromptReference(Struct, tag_field="type", tag="ref/prompt"):
    """A prompt, as the thing to complete for."""

    name: str


class ResourceTemplateReference(Struct, tag_field="type", tag="ref/resource"):
    """A resource template (or resource), as the thing to complete for."""

    uri: str


class CompletionArgument(Struct):
    """The argument to complete, and what was typed so far."""

    name: str
    value: str


class CompletionContext(Struct):
    """The arguments given already."""

    arguments: dict[str, str] | None = None


class CompleteParams(Params, kw_only=True):
    """``completion/complete``."""

    ref: PromptReference | ResourceTemplateReference
    argument: CompletionArgument
    context: CompletionContext | None = None


class CancelledParams(Params, kw_only=True):
    """``notifications/cancelled``."""

    request_id: int | str | None = None
    reason: str | None = None


class ListenFilter(Struct, rename="camel"):
    """What a ``subscriptions/listen`` asks for."""

    tools_list_changed: bool = False
    prompts_list_changed: bool = False
    resources_list_changed: bool = False
    resource_subscriptions: list[str] | None = None
    task_ids: list[str] | None = None


class ListenParams(Params, kw_only=True):
    """``subscriptions/listen``."""

    notifications: ListenFilter


_P = TypeVar("_P", bound=Params)
_decoders: dict[type[Params], msgspec.json.Decoder[Any]] = {}
_meta_decoder: Final = msgspec.json.Decoder(Meta)


def decode_params(kind: type[_P], params: Raw) -> _P:
    """Read *params* as *kind*.

    Raises:
      ProtocolError: -32602, naming the field that is wrong.
    """
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    try:
        decoded: _P = decoder.decode(params)
    except msgspec.ValidationError as exc:
        raise ProtocolError(INVALID_PARAMS, f"Invalid params: {exc}") from None
    return decoded


def may_have_meta(body: bytes) -> bool:
    """Whether a message's params may have a ``_meta``; most legacy ones have none, and this is soon said."""
    # `in` tries its operand as an integer first, and makes an exception of that each time.
    return body.find(b"_meta") >= 0 or body.find(b"\\u") >= 0


def read_meta(params: Raw) -> Meta:
    """The ``_meta`` of any params.

    Raises:
      ProtocolError: -32602 when it is not an object or a key that mcpd reads has the wrong type.
    """
    raw = decode_params(Params, params).meta
    if not raw:
        return NO_META
    try:
        return _meta_decoder.decode(raw)
    except msgspec.ValidationError as exc:
        raise ProtocolError(INVALID_PARAMS, f"Invalid _meta: {exc}", http_status=400) from None
