"""Tools: what one is, and one call of it."""

from __future__ import annotations

import re
from inspect import Signature as Inspect
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mcpd.errors import CapabilityError, ClientError, ToolError
from mcpd.protocol.types import CallToolResult, Icon, TextContent, Tool, ToolAnnotations, ToolExecution
from mcpd.server import downgrade
from mcpd.server.context import Context
from mcpd.server.invoke import checked_timeout, invoke, log_failure, meant, passes, translated
from mcpd.server.principal import scopes_needed
from mcpd.server.results import ResultError, ResultShape
from mcpd.server.schema import HeaderParameter, check_schema, header_parameters
from mcpd.server.signature import SignatureError, raw_signature_of, signature_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import trio

    from mcpd.protocol.revisions import Revision
    from mcpd.server.background import TaskSupport
    from mcpd.server.call import Call

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")


class ToolEntry:
    """A tool on offer."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None,
        title: str | None,
        description: str | None,
        icons: Sequence[Icon],
        annotations: ToolAnnotations | None,
        read_only: bool | None,
        input_schema: dict[str, Any] | None,
        output_schema: dict[str, Any] | None,
        meta: dict[str, Any] | None,
        task: TaskSupport | None,
        task_later: bool,
        scopes: Iterable[str] = (),
        timeout: float | None = None,
    ) -> None:
        """Raises SignatureError, SchemaError or ValueError for what can never work, saying why."""
        if input_schema is None:
            self.signature = signature_of(function, context_type=Context, name=name)
            headers = header_parameters(self.signature.input_schema, what=f"tool {self.signature.name!r}")
        else:
            headers = check_schema(input_schema, what=f"The input schema of tool {name or function!r}")
            self.signature = raw_signature_of(function, context_type=Context, input_schema=input_schema, name=name)
        self.name = self.signature.name
        if _NAME.fullmatch(self.name) is None:
            raise SignatureError(
                f"{self.name!r} cannot be a tool's name: use 1 to 128 of A-Z, a-z, 0-9, '_', '.' and '-' (name=...)"
            )
        self.headers: Sequence[HeaderParameter] = headers
        returns = self.signature.returns
        self._shape = ResultShape.from_annotation(
            Inspect.empty if returns is Any else returns, output_schema, name=self.name
        )
        if read_only is not None:
            annotations = msgspec.structs.replace(annotations or ToolAnnotations(), read_only_hint=read_only)
        self.read_only = annotations is not None and annotations.read_only_hint is True
        self.task: TaskSupport | None = task
        self.task_later = task_later
        self.scopes = scopes_needed(scopes)
        self._timeout = checked_timeout(timeout)
        self._at_once = timeout is None and iscoroutinefunction(function)
        """There is neither a thread nor a time to watch over: `invoke` would only wait for it."""
        self._tool = Tool(
            name=self.name,
            title=title,
            description=description or self.signature.description,
            icons=list(icons) or None,
            input_schema=self.signature.input_schema if input_schema is None else input_schema,
            annotations=annotations,
            meta=meta,
        )

    def describe(self, revision: Revision) -> Tool:
        """What ``tools/list`` says of it."""
        shape = self._shape
        schema = shape.output_schema if revision.bare_structure else shape.legacy_output_schema
        described = downgrade.declaration(msgspec.structs.replace(self._tool, output_schema=schema), revision)
        if self.task is not None and revision.priming:
            described.execution = ToolExecution(task_support=self.task)
        return described

    async def call(
        self, call: Call, context: Context, arguments: msgspec.Raw, limiter: trio.CapacityLimiter
    ) -> CallToolResult:
        """Run the tool once.

        "Tool execution errors [...] input validation errors" are results with ``isError`` (server/tools, "Error
        Handling").

        Raises:
          ProtocolError: one that the handler raised, or a capability that a modern client did not declare.
        """
        try:
            given = self.signature.decode(arguments)
        except msgspec.ValidationError as exc:
            return _failed(self.signature.explain(exc))
        try:
            if self._at_once:
                value = await self.signature.call(given, context)
            else:
                value = await invoke(self.signature, given, context, limiter, self._timeout)
            rendered = self._shape.render(value, wrap=not call.revision.bare_structure)
        except ResultError as exc:
            log_failure(f"Tool {self.name!r}", exc)
            return _failed("The tool returned something that cannot be sent")
        except BaseException as exc:
            if not isinstance(exc, Exception) and passes(exc):
                raise
            # Whatever a handler does, its client gets one answer.
            failure = self._failure(exc, call)
            if failure is None:
                raise translated(f"Tool {self.name!r}", exc) from None
            return failure
        return rendered if call.revision.icons else downgrade.result(rendered, call.revision)

    def _failure(self, exc: BaseException, call: Call) -> CallToolResult | None:
        """The result that tells of the handler's exception; None when it is an error response instead."""
        error = meant(exc)
        if isinstance(error, ToolError):
            return _failed(str(error))
        if isinstance(error, CapabilityError | ClientError) and not call.revision.modern:
            return _failed(error.message)
        if error is not None:
            return None
        log_failure(f"Tool {self.name!r}", exc)
        return _failed("The tool failed with an internal error")


def _failed(text: str) -> CallToolResult:
    return CallToolResult([TextContent(text)], is_error=True)
