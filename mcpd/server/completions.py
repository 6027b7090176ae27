"""Completion of the arguments of prompts and resource templates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from mcpd.protocol.types import CompleteResult, Completion
from mcpd.server.context import Context
from mcpd.server.invoke import invoke, translated
from mcpd.server.signature import SignatureError, signature_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import trio

MAX_VALUES: Final = 100
"""\"Completion values MUST NOT exceed 100 items\" (server/utilities/completion)."""


class CompletionEntry:
    """A function that suggests values for one argument."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """Raises SignatureError unless the function takes the text typed so far, and perhaps the context."""
        self.signature = signature_of(function, context_type=Context)
        if len(self.signature.parameters) != 1:
            raise SignatureError(
                f"{self.signature.name}: a completion takes one parameter, the text typed so far, and perhaps a Context"
            )
        (parameter,) = self.signature.parameters
        self._parameter = parameter.name

    async def complete(
        self, context: Context, value: str, given: Mapping[str, str], limiter: trio.CapacityLimiter
    ) -> CompleteResult:
        """Suggest values, at most `MAX_VALUES`.

        Raises:
          ProtocolError: -32603 when the function failed, or what it raised.
        """
        context.completion_arguments = given
        try:
            found = await invoke(
                self.signature, self.signature.from_strings({self._parameter: value}), context, limiter
            )
            return _result(found)
        except (Exception, SystemExit) as exc:  # noqa: BLE001 - whatever a handler does, its client gets one answer
            raise translated(f"Completion {self.signature.name!r}", exc) from None


def _result(found: Any) -> CompleteResult:
    if isinstance(found, Completion):
        completion = Completion(values=list(found.values), total=found.total, has_more=found.has_more)
    else:
        values = [str(value) for value in found or ()]
        completion = Completion(values=values, total=len(values))
    more = len(completion.values) > MAX_VALUES
    completion.values = completion.values[:MAX_VALUES]
    completion.has_more = more or completion.has_more or False
    return CompleteResult(completion=completion)
