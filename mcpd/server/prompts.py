"""Prompts: what one is, and one rendering of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from mcpd.errors import INVALID_PARAMS, ProtocolError
from mcpd.protocol.jsonrpc import encode_foreign
from mcpd.protocol.types import ContentBlock, GetPromptResult, Icon, Prompt, PromptArgument, PromptMessage, TextContent
from mcpd.server import downgrade
from mcpd.server.content import sendable
from mcpd.server.context import Context
from mcpd.server.invoke import checked_timeout, invoke, translated
from mcpd.server.principal import scopes_needed
from mcpd.server.signature import signature_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import trio

    from mcpd.protocol.revisions import Revision
    from mcpd.server.call import Call


class PromptEntry:
    """A prompt on offer."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None,
        title: str | None,
        description: str | None,
        icons: Sequence[Icon],
        meta: dict[str, Any] | None,
        scopes: Iterable[str] = (),
        timeout: float | None = None,
    ) -> None:
        """Raises SignatureError for what can never work, saying why."""
        self.signature = signature_of(function, context_type=Context, name=name)
        self.scopes = scopes_needed(scopes)
        self._timeout = checked_timeout(timeout)
        self.name = self.signature.name
        arguments = [
            PromptArgument(parameter.name, description=parameter.description, required=parameter.required)
            for parameter in self.signature.parameters
        ]
        self._prompt = Prompt(
            name=self.name,
            title=title,
            description=description or self.signature.description,
            icons=list(icons) or None,
            arguments=arguments or None,
            meta=meta,
        )

    def describe(self, revision: Revision) -> Prompt:
        """What ``prompts/list`` says of it."""
        return downgrade.declaration(msgspec.structs.replace(self._prompt), revision)

    @property
    def argument_names(self) -> tuple[str, ...]:
        """Its arguments, by name."""
        return tuple(parameter.name for parameter in self.signature.parameters)

    async def get(
        self, call: Call, context: Context, arguments: dict[str, str], limiter: trio.CapacityLimiter
    ) -> GetPromptResult:
        """Render the prompt once.

        Raises:
          ProtocolError: -32602 for arguments that do not fit, -32603 when rendering failed, or what the handler raised.
        """
        try:
            given = self.signature.from_strings(arguments)
        except msgspec.ValidationError as exc:
            raise ProtocolError(INVALID_PARAMS, self.signature.explain(exc)) from None
        try:
            value = await invoke(self.signature, given, context, limiter, self._timeout)
            rendered = _result(value)
        except (Exception, SystemExit) as exc:  # noqa: BLE001 - whatever a handler does, its client gets one answer
            raise translated(f"Prompt {self.name!r}", exc) from None
        messages = [
            PromptMessage(message.role, downgrade.block(message.content, call.revision))
            for message in rendered.messages
        ]
        return GetPromptResult(
            description=rendered.description or self._prompt.description, messages=messages, meta=rendered.meta
        )


def _result(value: Any) -> GetPromptResult:
    if isinstance(value, GetPromptResult):
        result = value
        if result.meta is not None:
            encode_foreign(result.meta)
    else:
        parts = cast("Sequence[Any]", value) if isinstance(value, list | tuple) else [value]
        result = GetPromptResult(messages=[_message(part) for part in parts])
    for message in result.messages:
        sendable(message.content)
    return result


def _message(part: Any) -> PromptMessage:
    if isinstance(part, PromptMessage):
        return part
    if isinstance(part, str):
        return PromptMessage("user", TextContent(part))
    if isinstance(part, ContentBlock):
        return PromptMessage("user", part)
    raise TypeError(f"A prompt returns text, content, messages or a list of these, not {type(part).__name__}")
