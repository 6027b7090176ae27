"""What is on offer: the server as its clients see it, in the words of each revision."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec
import trio

from mcpd.protocol.requests import InputParams
from mcpd.protocol.types import Implementation
from mcpd.server.background import TASKS
from mcpd.server.registry import Pages
from mcpd.server.rounds import Rounds
from mcpd.server.skills import SKILLS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from mcpd.protocol.revisions import Revision
    from mcpd.server.background import TaskRunner
    from mcpd.server.meter import Meter
    from mcpd.server.resources import ResourceEntry
    from mcpd.server.seal import Sealer
    from mcpd.server.server import Server
    from mcpd.server.tools import ToolEntry

SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"


class CacheHint(NamedTuple):
    """How long a client may keep a result, and who may share it (2026-07-28, server/utilities/caching)."""

    ttl_ms: int = 0
    scope: Literal["private", "public"] = "private"


class Offer:
    """One server as it is served: its lists, its capabilities, its lifespan and its worker threads."""

    def __init__(self, server: Server, *, read_only: bool, cache: CacheHint, sealer: Sealer) -> None:
        """
        Args:
          server: what is offered.
          read_only: offer only tools that say they are.
          cache: what modern clients are told of lists and resources.
          sealer: seals what a modern call wants to know again.
        """  # noqa: D205, D212 - the class says it
        self.server = server
        self.cache = cache
        self.sealer = sealer
        self.first_round = partial(Rounds, params=InputParams(), sealer=sealer)
        """For calls that bring no answers: makes their rounds when they ask."""
        self.meter: Meter | None = None
        self.tasks: TaskRunner | None = None
        """Runs calls as tasks; set by who can."""
        self.lifespan: Any = None
        self.threads: trio.CapacityLimiter = server.new_limiter()
        self._read_only = read_only
        self._meta: dict[str, Any] = {SERVER_INFO: {"name": server.info.name, "version": server.info.version}}
        size = server.page_size
        self.tools = Pages(server.tools, "tools", size=size, extra=self.list_extra, shown=self._shown)
        self.prompts = Pages(server.prompts, "prompts", size=size, extra=self.list_extra)
        self.resources = Pages(server.resources, "resources", size=size, extra=self.list_extra)
        self.skills = Pages(server.skill_entries, "skills", size=size, extra=self.list_extra)
        self.templates = Pages(server.templates, "resourceTemplates", size=size, extra=self.list_extra)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Keep the server's lifespan open."""
        if self.server.lifespan is None:
            yield
            return
        async with self.server.lifespan(self.server) as value:
            self.lifespan = value
            try:
                yield
            finally:
                self.lifespan = None

    @property
    def has_tasks(self) -> bool:
        """Whether a tool may run as a task."""
        return self.tasks is not None and any(entry.task is not None for entry in self.server.tools)

    def tool(self, name: str) -> ToolEntry | None:
        """The tool of this name, if it is on offer."""
        entry = self.server.tools.get(name)
        return None if self._read_only and entry is not None and not entry.read_only else entry

    def resource(self, uri: str) -> tuple[ResourceEntry, dict[str, str]] | None:
        """The resource of this URI, or the template it fits, with the template's variables."""
        entry = self.server.resources.get(uri)
        if entry is not None:
            return entry, {}
        for entry in self.server.templates:
            values = entry.match(uri)
            if values is not None:
                return entry, values
        return None

    def initialize(self, revision: Revision) -> dict[str, Any]:
        """The ``InitializeResult`` of a session of *revision*."""
        result: dict[str, Any] = {
            "protocolVersion": revision.name,
            "capabilities": self.capabilities(revision),
            "serverInfo": self._info(revision),
        }
        if self.server.instructions is not None:
            result["instructions"] = self.server.instructions
        return result

    def capabilities(self, revision: Revision) -> dict[str, Any]:
        """What is on offer: each kind that there is, and that its changes are told."""
        server = self.server
        found: dict[str, Any] = {"logging": {}}
        if len(server.tools):
            found["tools"] = {"listChanged": True}
        if len(server.prompts):
            found["prompts"] = {"listChanged": True}
        if len(server.resources) or len(server.templates):
            found["resources"] = {"subscribe": True, "listChanged": True}
        if server.completions and revision.audio:
            found["completions"] = {}
        if revision.modern:
            extensions: dict[str, Any] = {}
            if self.has_tasks:
                extensions[TASKS] = {}
            if len(server.skill_entries):
                extensions[SKILLS] = {"directoryRead": True}
            if extensions:
                found["extensions"] = extensions
        elif revision.priming and self.has_tasks:
            found["tasks"] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
        return found

    def _info(self, revision: Revision) -> Implementation:
        info = self.server.info
        if revision.icons:
            return info
        return Implementation(info.name, info.version, title=info.title if revision.structured else None)

    def _shown(self, entry: ToolEntry) -> bool:
        return entry.read_only or not self._read_only

    def complete(self, result: Any) -> Any:
        """What every modern result has besides: its type, and who it is from."""
        if isinstance(result, msgspec.Struct):
            result.result_type = "complete"  # type: ignore[attr-defined]  # every result type has it
            result.meta = self._meta | result.meta if result.meta else self._meta  # type: ignore[attr-defined]
        return result

    def signed(self, result: dict[str, Any]) -> dict[str, Any]:
        """A modern result with who it is from."""
        return result | {"_meta": self._meta}

    def list_extra(self, revision: Revision) -> dict[str, Any]:
        if not revision.modern:
            return {}
        return {
            "ttlMs": self.cache.ttl_ms,
            "cacheScope": self.cache.scope,
            "resultType": "complete",
            "_meta": self._meta,
        }
