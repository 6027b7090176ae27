"""`Server`: what an author declares."""

from __future__ import annotations

import secrets
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, overload
from urllib.parse import unquote

import trio

from mcpd.protocol.types import Annotations, Icon, Implementation, ResourceContents, ToolAnnotations
from mcpd.server.changes import Change
from mcpd.server.completions import CompletionEntry
from mcpd.server.content import guess_type, resource_contents
from mcpd.server.prompts import PromptEntry
from mcpd.server.registry import Registry
from mcpd.server.resources import ResourceEntry
from mcpd.server.skills import Skill, SkillEntry, SkillError, read_skills
from mcpd.server.tools import ToolEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from mcpd.server.background import TaskSupport

F = TypeVar("F", bound="Callable[..., Any]")
PAGE_SIZE: Final = 500
MAX_THREADS: Final = 40


class Server:
    """Tools, resources and prompts under one name.

    A server is a declaration: it holds no connection, session or task, and may be served by several transports at once.
    It may change while it is served; clients are told.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str = "0",
        title: str | None = None,
        description: str | None = None,
        instructions: str | None = None,
        website_url: str | None = None,
        icons: Sequence[Icon] = (),
        lifespan: Callable[[Server], AbstractAsyncContextManager[Any]] | None = None,
        page_size: int = PAGE_SIZE,
        max_threads: int = MAX_THREADS,
    ) -> None:
        """
        Args:
          name: for programs, as in ``serverInfo.name``.
          version: of the application.
          title: for people.
          description: what it is for.
          instructions: how the model should use it.
          website_url: where to read more.
          icons: to show for it.
          lifespan: called with the server; the async context manager it returns is open while the server is
            served, and what it yields is ``ctx.lifespan``.
          page_size: how many entries one page of a list has.
          max_threads: how many plain (not async) handlers may run at once; more of them wait.

        Raises:
          ValueError: *page_size* or *max_threads* is less than 1.
        """  # noqa: D205, D212 - the class says it
        if page_size < 1 or max_threads < 1:
            raise ValueError("page_size and max_threads must be at least 1")
        self.info = Implementation(
            name, version, title=title, description=description, website_url=website_url, icons=list(icons) or None
        )
        self.instructions = instructions
        self.lifespan = lifespan
        self.page_size = page_size
        self.max_threads = max_threads
        self.listeners: set[Callable[[Change], object]] = set()
        """Called with each change, from Trio's thread; transports register here."""
        self.tools: Registry[ToolEntry] = Registry("tool", self.notify_tools_changed)
        self.prompts: Registry[PromptEntry] = Registry("prompt", self.notify_prompts_changed)
        self.resources: Registry[ResourceEntry] = Registry("resource", self.notify_resources_changed)
        self.templates: Registry[ResourceEntry] = Registry("resource template", self.notify_resources_changed)
        self.skill_entries: Registry[SkillEntry] = Registry("skill", lambda: None)
        self.skill_folders: list[Skill] = []
        self.completions: dict[tuple[str, str], CompletionEntry] = {}

    def __repr__(self) -> str:
        return f"<Server {self.info.name!r}: {len(self.tools)} tools, {len(self.prompts)} prompts>"

    # ----- Tools

    @overload
    def tool(self, function: F, /) -> F: ...
    @overload
    def tool(
        self,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: Sequence[Icon] = (),
        annotations: ToolAnnotations | None = None,
        read_only: bool | None = None,
        input_schema: dict[str, Any] | None = None,
        output_schema: dict[str, Any] | None = None,
        meta: dict[str, Any] | None = None,
        task: TaskSupport | None = None,
        task_later: bool = False,
        scopes: Sequence[str] = (),
        timeout: float | None = None,
    ) -> Callable[[F], F]: ...
    def tool(self, function: Callable[..., Any] | None = None, /, **options: Any) -> object:
        """Offer a function as a tool: ``@server.tool``, or with arguments. The function itself is returned unchanged.

        Args:
          function: async, or plain (then it runs in a worker thread).
          options: those of `add_tool`.

        Raises:
          SignatureError: its signature can never work, with the reason.
          SchemaError: a raw schema can never work.
          ValueError: there is a tool of this name.
        """

        def add(function: F) -> F:
            self.add_tool(function, **options)
            return function

        return add if function is None else add(function)

    def add_tool(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: Sequence[Icon] = (),
        annotations: ToolAnnotations | None = None,
        read_only: bool | None = None,
        input_schema: dict[str, Any] | None = None,
        output_schema: dict[str, Any] | None = None,
        meta: dict[str, Any] | None = None,
        task: TaskSupport | None = None,
        task_later: bool = False,
        scopes: Sequence[str] = (),
        timeout: float | None = None,
    ) -> None:
        """Offer a function as a tool.

        Args:
          function: async, or plain (then it runs in a worker thread).
          name: by default the function's.
          title: for people.
          description: for the model; by default the docstring without its parameter section.
          icons: to show for it.
          annotations: hints about what it does.
          read_only: short for ``annotations.read_only_hint``; ``mcpd serve --read-only`` offers only such tools.
          input_schema: a raw JSON Schema for the arguments, listed unchanged; the function then takes them as one
          parameter.
          output_schema: a raw JSON Schema for the structured result.
          meta: ``_meta`` of the tool.
          task: whether it may, or must, run as a task that outlives its request (SEP-2663; 2025-11-25, tasks).
          task_later: let it become one only where it calls ``ctx.start_task()``; before, it can ask its user in rounds.
          scopes: what a caller must have been granted, all of it. The tool is listed to all, and its call without them
            answered with 403 and a challenge, so that a client can ask its user for more. Over HTTP without
            authorization nobody has a scope; on stdio and in-process there is none to have.
          timeout: seconds that one call may take, in each round, with the time its client takes to answer questions.
            Then it is cancelled, and the result says so with ``isError``. A plain function runs on in its thread,
            unobserved. By default there is no limit.

        Raises:
          SignatureError: its signature can never work, with the reason.
          SchemaError: a raw schema can never work.
          ValueError: there is a tool of this name, or a scope is none, or *timeout* is not more than 0.
        """
        entry = ToolEntry(
            function,
            name=name,
            title=title,
            description=description,
            icons=icons,
            annotations=annotations,
            read_only=read_only,
            input_schema=input_schema,
            output_schema=output_schema,
            meta=meta,
            task=task,
            task_later=task_later,
            scopes=scopes,
            timeout=timeout,
        )
        self.tools.add(entry.name, entry)

    def remove_tool(self, name: str) -> None:
        """No longer offer the tool; calls of it go on.

        Raises:
          KeyError: there is no such tool.
        """
        self.tools.remove(name)

    # ----- Resources

    def resource(
        self,
        uri: str,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        icons: Sequence[Icon] = (),
        annotations: Annotations | None = None,
        size: int | None = None,
        meta: dict[str, Any] | None = None,
        scopes: Sequence[str] = (),
        timeout: float | None = None,
        cache_ttl: float | None = None,
        cache_scope: Literal["private", "public"] | None = None,
    ) -> Callable[[F], F]:
        """Offer what a function returns as a resource: ``@server.resource("note://{name}")``, as `add_resource`."""

        def add(function: F) -> F:
            self.add_resource(
                uri,
                function,
                name=name,
                title=title,
                description=description,
                mime_type=mime_type,
                icons=icons,
                annotations=annotations,
                size=size,
                meta=meta,
                scopes=scopes,
                timeout=timeout,
                cache_ttl=cache_ttl,
                cache_scope=cache_scope,
            )
            return function

        return add

    def add_resource(
        self,
        uri: str,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        icons: Sequence[Icon] = (),
        annotations: Annotations | None = None,
        size: int | None = None,
        meta: dict[str, Any] | None = None,
        scopes: Sequence[str] = (),
        timeout: float | None = None,
        cache_ttl: float | None = None,
        cache_scope: Literal["private", "public"] | None = None,
    ) -> None:
        """Offer what a function returns as a resource, or as all resources of an RFC 6570 template.

        The function's parameters are the template's variables. It returns text, bytes, resource contents, a list of
        these, anything JSON has a form for, or None: there is no such resource.

        Args:
          uri: the URI, or a template.
          function: async, or plain (then it runs in a worker thread).
          name: by default the function's.
          title: for people.
          description: by default the docstring without its parameter section.
          mime_type: of the contents; by default text/plain, application/octet-stream or application/json.
          icons: to show for it.
          annotations: hints for the client.
          size: in bytes, if it is known.
          meta: ``_meta`` of the resource.
          scopes: what a caller must have been granted to read it, or hear of its updates; see `add_tool`.
          timeout: seconds that reading it may take, see `add_tool`; then there is an error.
          cache_ttl: how many seconds modern clients may keep what they have read; by default as the setting says, or
            not at all if it needs scopes. A `ReadResourceResult` that the function returns has the last word.
          cache_scope: whether they may share it between users, ``"private"`` or ``"public"``; by default the same.

        Raises:
          SignatureError: the parameters are not the template's variables, or can never work.
          ValueError: no URI or template, or there is one of this URI, or a scope is none, or cache_ttl is negative, or
            cache_scope is neither, or public for what needs scopes.
        """
        entry = ResourceEntry(
            function,
            uri,
            name=name,
            title=title,
            description=description,
            mime_type=mime_type,
            icons=icons,
            annotations=annotations,
            size=size,
            meta=meta,
            scopes=scopes,
            timeout=timeout,
            cache_ttl=cache_ttl,
            cache_scope=cache_scope,
        )
        (self.templates if entry.is_template else self.resources).add(uri, entry)

    def remove_resource(self, uri: str) -> None:
        """No longer offer the resource or template.

        Raises:
          KeyError: there is none of this URI.
        """
        (self.templates if self.templates.get(uri) is not None else self.resources).remove(uri)

    # ----- Prompts and completion

    @overload
    def prompt(self, function: F, /) -> F: ...
    @overload
    def prompt(
        self,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: Sequence[Icon] = (),
        meta: dict[str, Any] | None = None,
        scopes: Sequence[str] = (),
        timeout: float | None = None,
    ) -> Callable[[F], F]: ...
    def prompt(self, function: Callable[..., Any] | None = None, /, **options: Any) -> object:
        """Offer what a function returns as a prompt: ``@server.prompt``, or with the arguments of `add_prompt`."""

        def add(function: F) -> F:
            self.add_prompt(function, **options)
            return function

        return add if function is None else add(function)

    def add_prompt(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: Sequence[Icon] = (),
        meta: dict[str, Any] | None = None,
        scopes: Sequence[str] = (),
        timeout: float | None = None,
    ) -> None:
        """Offer what a function returns as a prompt.

        It returns text (a message of the user), content, a `PromptMessage`, or a list of these. Its arguments come as
        strings and are converted to what the signature says.

        Args:
          function: async, or plain (then it runs in a worker thread).
          name: by default the function's.
          title: for people.
          description: by default the docstring without its parameter section.
          icons: to show for it.
          meta: ``_meta`` of the prompt.
          scopes: what a caller must have been granted to get it; see `add_tool`.
          timeout: seconds that it may take, see `add_tool`; then there is an error.

        Raises:
          SignatureError: its signature can never work, with the reason.
          ValueError: there is a prompt of this name, or a scope is none.
        """
        entry = PromptEntry(
            function,
            name=name,
            title=title,
            description=description,
            icons=icons,
            meta=meta,
            scopes=scopes,
            timeout=timeout,
        )
        self.prompts.add(entry.name, entry)

    def remove_prompt(self, name: str) -> None:
        """No longer offer the prompt.

        Raises:
          KeyError: there is no such prompt.
        """
        self.prompts.remove(name)

    def completion(self, ref: str, argument: str) -> Callable[[F], F]:
        """Suggest values for an argument: ``@server.completion("prompt", "argument")``.

        The function gets the text typed so far and returns a list of strings, the best first; the arguments given
        already are in ``ctx.completion_arguments``.

        Args:
          ref: a prompt's name, or a resource template as it was registered.
          argument: which of its arguments.

        Raises:
          SignatureError: it takes something else than the text, and perhaps a `Context`.
        """

        def add(function: F) -> F:
            self.completions[ref, argument] = CompletionEntry(function)
            return function

        return add

    # ----- Skills

    def skills(self, folder: str | Path) -> None:
        """Serve a folder of skills: each folder below it with a SKILL.md, with all its files (SEP-2640).

        A skill may lie in the folder of another; its files are then its own, and none of the outer one's.
        What begins with a dot (``.git``, ``.env``) is left out.
        The files are read now; a change on disk shows after the next start. They are resources of ``skill://`` in both
        eras, and what modern clients find by ``skills/list``.

        Args:
          folder: where the skills are.

        Raises:
          SkillError: there is none, or one cannot be served, with the reason. Then none of them is.
          OSError: a file cannot be read.
        """
        skills = read_skills(folder)
        for uri in (uri for skill in skills for uri in skill.files):
            if self.resources.get(uri) is not None or self.skill_entries.get(uri) is not None:
                raise SkillError(f"There is a resource or skill {uri!r} already")
        for skill in skills:
            self.skill_entries.add(skill.main, skill.entry())
            self.skill_folders.append(skill)
            for uri, data in skill.files.items():
                is_main = uri == skill.main
                mime_type = guess_type(uri) or "application/octet-stream"
                self.add_resource(
                    uri,
                    partial(_same, uri, data, mime_type),
                    name=skill.frontmatter["name"] if is_main else unquote(uri.rpartition("/")[2]),
                    description=skill.frontmatter["description"] if is_main else None,
                    mime_type=mime_type,
                    size=len(data),
                )

    # ----- What changed

    def notify_tools_changed(self) -> None:
        """Tell clients that the list of tools has changed. Call it from Trio's thread; it does not wait."""
        self._tell(Change("tools"))

    def notify_prompts_changed(self) -> None:
        """The same for prompts."""
        self._tell(Change("prompts"))

    def notify_resources_changed(self) -> None:
        """The same for resources and templates."""
        self._tell(Change("resources"))

    def notify_resource_updated(self, uri: str) -> None:
        """Tell the clients that are subscribed to *uri* that its content has changed."""
        self._tell(Change("resource", uri))

    def _tell(self, change: Change) -> None:
        for listener in list(self.listeners):
            listener(change)

    def new_limiter(self) -> trio.CapacityLimiter:
        """The bound on worker threads for one run of the server."""
        return trio.CapacityLimiter(self.max_threads)

    @staticmethod
    def new_id() -> str:
        """An unguessable identifier."""
        return secrets.token_urlsafe(18)


async def _same(uri: str, data: bytes, mime_type: str) -> ResourceContents:
    await trio.lowlevel.checkpoint()
    return resource_contents(uri, data, mime_type)
