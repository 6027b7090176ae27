"""Resources and resource templates: what one is, and one reading of it."""

from __future__ import annotations

import base64
import copy
import math
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import msgspec

from mcpd.errors import INVALID_PARAMS, RESOURCE_NOT_FOUND, ProtocolError
from mcpd.protocol.jsonrpc import encode, encode_foreign
from mcpd.protocol.types import (
    Annotations,
    BlobResourceContents,
    Icon,
    ReadResourceResult,
    Resource,
    ResourceContents,
    ResourceTemplate,
    TextResourceContents,
)
from mcpd.server import downgrade
from mcpd.server.content import sendable
from mcpd.server.context import Context
from mcpd.server.invoke import checked_timeout, invoke, translated
from mcpd.server.principal import scopes_needed
from mcpd.server.signature import SignatureError, signature_of
from mcpd.server.uri_template import UriTemplate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence, Sized

    import trio

    from mcpd.protocol.revisions import Revision
    from mcpd.server.call import Call

_EMPTY: Final[dict[str, str]] = {}
_CONTENTS: Final = (TextResourceContents, BlobResourceContents)


class ResourceEntry:
    """A resource of one URI, or all resources of a template."""

    def __init__(
        self,
        function: Callable[..., Any],
        uri: str,
        *,
        name: str | None,
        title: str | None,
        description: str | None,
        mime_type: str | None,
        icons: Sequence[Icon],
        annotations: Annotations | None,
        size: int | None,
        meta: dict[str, Any] | None,
        scopes: Iterable[str] = (),
        timeout: float | None = None,
        cache_ttl: float | None = None,
        cache_scope: Literal["private", "public"] | None = None,
    ) -> None:
        """Raises SignatureError if the parameters are not the template's variables, ValueError for what is no URI."""
        self.signature = signature_of(function, context_type=Context, name=name)
        self.scopes = scopes_needed(scopes)
        self._timeout = checked_timeout(timeout)
        if cache_ttl is not None and not 0 <= cache_ttl < math.inf:
            raise ValueError(f"cache_ttl must be 0 seconds or more, not {cache_ttl!r}")
        if cache_scope not in {None, "private", "public"}:
            raise ValueError(f"cache_scope is 'private' or 'public', not {cache_scope!r}")
        if cache_scope == "public" and self.scopes:
            raise ValueError(f"{uri!r} needs scopes, so its cache_scope cannot be 'public'")
        self._cache_ttl_ms = None if cache_ttl is None else round(cache_ttl * 1000)
        self._cache_scope: Literal["private", "public"] | None = cache_scope
        self.template = UriTemplate(uri)
        self.uri = uri
        self._mime_type = mime_type
        variables = set(self.template.variables)
        for parameter in self.signature.parameters:
            if parameter.name not in variables:
                raise SignatureError(
                    f"{self.signature.name}: parameter {parameter.name!r} is no variable of {uri!r}; "
                    f"write {{{parameter.name}}} into the URI or take the parameter away"
                )
        missing = variables - {parameter.name for parameter in self.signature.parameters}
        if missing:
            raise SignatureError(
                f"{self.signature.name}: {uri!r} has {{{min(missing)}}}, but the function has no such parameter"
            )
        described = description or self.signature.description
        self._declared: Resource | ResourceTemplate
        if self.is_template:
            self._declared = ResourceTemplate(
                uri_template=uri,
                name=self.signature.name,
                title=title,
                description=described,
                mime_type=mime_type,
                icons=list(icons) or None,
                annotations=annotations,
                meta=meta,
            )
        else:
            self._declared = Resource(
                uri=uri,
                name=self.signature.name,
                title=title,
                description=described,
                mime_type=mime_type,
                size=size,
                icons=list(icons) or None,
                annotations=annotations,
                meta=meta,
            )

    @property
    def is_template(self) -> bool:
        """Whether its URI has variables."""
        return bool(self.template.variables)

    def describe(self, revision: Revision) -> Resource | ResourceTemplate:
        """What a list says of it."""
        declared = self._declared
        if isinstance(declared, Resource):
            return downgrade.declaration(msgspec.structs.replace(declared), revision)
        return downgrade.declaration(msgspec.structs.replace(declared), revision)

    def match(self, uri: str) -> dict[str, str] | None:
        """The variables' values if *uri* is one of this entry's, else None."""
        if not self.is_template:
            return _EMPTY if uri == self.uri else None
        return self.template.match(uri)

    async def read(
        self, call: Call, context: Context, uri: str, values: dict[str, str], limiter: trio.CapacityLimiter
    ) -> ReadResourceResult:
        """Read *uri* once.

        Raises:
          ProtocolError: there is no such resource (the function returned None, or a variable does not fit its
            parameter), -32603 when reading failed, or what the handler raised.
        """
        try:
            arguments = self.signature.from_strings(values)
        except msgspec.ValidationError:
            raise not_found(uri, call.revision) from None
        try:
            value = await invoke(self.signature, arguments, context, limiter, self._timeout)
            result = None if value is None else self._result(value, uri)
        except (Exception, SystemExit) as exc:  # noqa: BLE001 - whatever a handler does, its client gets one answer
            raise translated(f"Resource {self.uri!r}", exc) from None
        if result is None:
            raise not_found(uri, call.revision)
        return result

    def _result(self, value: Any, uri: str) -> ReadResourceResult:
        """A result of the caller's own, to change as it likes; with hints only where the function or entry has some."""
        if isinstance(value, ReadResourceResult):
            result = copy.copy(value)
            if result.meta is not None:
                encode_foreign(result.meta)
        else:
            result = ReadResourceResult(contents=self._contents(value, uri))
        for contents in result.contents:
            sendable(contents)
        if result.ttl_ms is None:
            result.ttl_ms = self._cache_ttl_ms
        if result.cache_scope is None:
            result.cache_scope = self._cache_scope
        return result

    def _contents(self, value: Any, uri: str) -> list[ResourceContents]:
        if isinstance(value, list) and value:
            parts = [part for part in cast("Iterable[object]", value) if isinstance(part, _CONTENTS)]
            if len(parts) == len(cast("Sized", value)):
                return parts
        if isinstance(value, _CONTENTS):
            return [value]
        if isinstance(value, str):
            return [TextResourceContents(uri=uri, mime_type=self._mime_type or "text/plain", text=value)]
        if isinstance(value, bytes | bytearray | memoryview):
            blob = base64.b64encode(cast("bytes", value)).decode()
            return [BlobResourceContents(uri=uri, mime_type=self._mime_type or "application/octet-stream", blob=blob)]
        return [
            TextResourceContents(uri=uri, mime_type=self._mime_type or "application/json", text=encode(value).decode())
        ]


def not_found(uri: str, revision: Revision) -> ProtocolError:
    """No such resource: -32602 since 2026-07-28, -32002 before, never an empty ``contents`` (server/resources)."""
    code = INVALID_PARAMS if revision.modern else RESOURCE_NOT_FOUND
    return ProtocolError(code, "Resource not found", {"uri": uri})
