"""What a handler can do besides returning: report, log, ask the client, and know where it is."""

from __future__ import annotations

import math
from contextvars import ContextVar
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast, overload
from urllib.parse import urlsplit

import msgspec
import trio

from mcpd.errors import CapabilityError
from mcpd.protocol.jsonrpc import encode, encode_foreign, encode_notification
from mcpd.protocol.requests import Params, decode_params
from mcpd.protocol.types import (
    LOGGING_LEVELS,
    CreateMessageResult,
    ElicitResult,
    ListRootsResult,
    LoggingLevel,
    ModelPreferences,
    Root,
    SamplingMessage,
    TextContent,
    Tool,
    ToolChoice,
    ToolResultContent,
    ToolUseContent,
)
from mcpd.server.forms import Form
from mcpd.server.principal import identity_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mcpd.protocol.jsonrpc import RequestId
    from mcpd.protocol.types import ClientCapabilities, Implementation
    from mcpd.server.call import Call, SessionState
    from mcpd.server.handles import HandleSource, PrincipalHandles
    from mcpd.server.principal import Principal
    from mcpd.server.server import Server

T = TypeVar("T")
ASK_TIMEOUT: Final = 600.0
_MAKING: Final[ContextVar[frozenset[str]]] = ContextVar("mcpd_making", default=frozenset())
"""What `Context.once` is making around this task."""
_LEVELS: Final[dict[str, int]] = {str(level): number for level, number in LOGGING_LEVELS.items()}
_sampled: Final = msgspec.json.Decoder(CreateMessageResult)
_rooted: Final = msgspec.json.Decoder(ListRootsResult)
_elicited: Final = msgspec.json.Decoder(ElicitResult[Any])


class Context:
    """The context of one call; a handler gets it by annotating a parameter with `Context`.

    It is of no use once its call has ended. Its methods may be used from several tasks of the handler at once, and from
    a plain function's thread with ``trio.from_thread.run(ctx.progress, 1)``. All of them are checkpoints, and stop with
    ``trio.Cancelled`` when the client cancels the call.
    """

    __slots__ = ("_call", "_done", "_handles", "_making", "_server", "completion_arguments")

    def __init__(self, server: Server, call: Call, handles: HandleSource | None = None) -> None:
        """Made by the server, one for each call."""
        self._handles = handles
        self._server = server
        self._call = call
        self._done: dict[str, bytes] | None = None
        self._making: dict[str, trio.Event] = {}
        self.completion_arguments: Mapping[str, str] = {}
        """In a completion: the arguments given already."""

    # ----- Where the call is from

    @property
    def request_id(self) -> RequestId:
        """The JSON-RPC id of the request."""
        return self._call.id

    @property
    def protocol_version(self) -> str:
        """The revision the request is served by, as ``"2025-11-25"``."""
        return self._call.revision.name

    @property
    def client_info(self) -> Implementation | None:
        """What the client says it is. For display and logs; not to be trusted."""
        return self._call.client_info

    @property
    def client_capabilities(self) -> ClientCapabilities:
        """What the client declared: for the session (legacy) or in this request (modern)."""
        return self._call.capabilities

    @property
    def headers(self) -> Mapping[str, str]:
        """The HTTP request's header fields by lower-case name, without the access token; empty elsewhere."""
        headers = self._call.headers
        if headers is None:
            return {}
        found = dict(headers)
        if self._call.principal is not None:
            # "The MCP server MUST NOT pass through the token it received from the MCP client" (2026-07-28,
            # basic/authorization/security-considerations): nobody below here gets it.
            found.pop("authorization", None)
        return found

    @property
    def principal(self) -> Principal | None:
        """Who is asking, as authorization found out; None without it, and on stdio.

        The access token itself is nobody's business here: to call others on the user's behalf a server needs tokens of
        its own, issued for those ("MUST NOT pass through the token it received", basic/authorization).
        """
        return self._call.principal

    @property
    def session(self) -> SessionState | None:
        """The legacy session, for state of its own; None on a modern request, which has none."""
        return self._call.session

    @property
    def lifespan(self) -> Any:
        """What the server's lifespan has yielded."""
        return self._call.lifespan

    @property
    def meta(self) -> dict[str, Any]:
        """The request's ``_meta`` as received, ``traceparent`` included."""
        raw = decode_params(Params, self._call.params).meta
        return cast("dict[str, Any]", msgspec.json.decode(raw)) if raw else {}

    @property
    def handles(self) -> PrincipalHandles:
        """State across calls, by unguessable ids that the client carries: `PrincipalHandles`."""
        if self._handles is None:
            raise RuntimeError("This server was made without a store for handles")
        return self._handles.of(identity_of(self._call.principal), self._call.owner)

    async def start_task(self) -> None:
        """From here on run as a task: the request is answered with it, and the call goes on.

        For tools with ``task_later=True``; elsewhere, and where the client cannot have a task, it does nothing.

        Raises:
          ProtocolError: there are too many tasks.
        """
        if self._call.background is None:
            await trio.lowlevel.checkpoint()
        else:
            await self._call.background.start()

    # ----- What it reports

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress on the call's own stream, if its client asked for it.

        "The progress value MUST increase with each notification": a report that does not is left out
        (basic/utilities/progress).

        Args:
          progress: how far it is.
          total: where it ends, if that is known.
          message: what is being done, for a person.
        """
        call = self._call
        token = call.meta.progress_token
        forward = math.isfinite(progress) and (call.progress is None or progress > call.progress)
        if token is None or not forward or call.cancelled:
            await trio.lowlevel.checkpoint()
            return
        call.progress = progress
        params: dict[str, Any] = {"progressToken": token, "progress": progress}
        if total is not None and math.isfinite(total):
            params["total"] = total
        if message is not None and call.revision.audio:
            params["message"] = message
        await call.outlet.send(encode_notification("notifications/progress", params))

    async def log(self, level: LoggingLevel, data: Any, *, logger: str | None = None) -> None:
        """Send a log message to the client, if it wants messages of this level.

        A legacy client gets all of them until it sets a level; a modern one only those it asked for in the request.
        Never put secrets or personal data in it (server/utilities/logging).

        Raises:
          ValueError: there is no such level, or a `msgspec.Raw` in *data* is no JSON.
          TypeError: JSON has no form for *data*.
        """
        if level not in _LEVELS:  # a program that is not type-checked may say anything
            raise ValueError(f"Unknown log level {level!r}; known are {', '.join(LOGGING_LEVELS)}")
        call = self._call
        wanted = call.log_level
        unwanted = call.revision.modern if wanted is None else _LEVELS[level] < _LEVELS[wanted]
        if unwanted or call.cancelled:
            await trio.lowlevel.checkpoint()
            return
        params: dict[str, Any] = {"level": level, "data": encode_foreign(data)}
        if logger is not None:
            params["logger"] = logger
        await call.outlet.send(encode_notification("notifications/message", params))

    async def debug(self, data: Any) -> None:
        """`log` at level debug."""
        await self.log("debug", data)

    async def info(self, data: Any) -> None:
        """`log` at level info."""
        await self.log("info", data)

    async def warning(self, data: Any) -> None:
        """`log` at level warning."""
        await self.log("warning", data)

    async def error(self, data: Any) -> None:
        """`log` at level error."""
        await self.log("error", data)

    async def close_stream(self) -> None:
        """Close the HTTP connection of this call's stream, not the stream: the client resumes it (SEP-1699).

        For long calls that should hold no connection. It has no effect where the stream cannot be resumed.
        """
        await self._call.outlet.close_stream()

    async def once(self, key: str, make: Callable[[], Any]) -> Any:
        """Do a thing once, however often the handler runs: what *make* returned is kept and returned again.

        A modern call that asks its user something ends, and its handler runs from the start when the answer is there.
        Wrap what must not happen again (an order, a mail, a random choice) in `once`. What is kept travels sealed with
        the client; it is kept for this call only, and within the time of a retry. Who wants the same at the same time
        waits for it. If *make* raises, nothing is kept.

        Once begun, *make* runs to its end: neither a question of a sibling, nor a client that cancels the call or goes
        away, nor a server that stops interrupts it. They wait for it, so give it a time-out (``trio.fail_after``) if it
        may hang. What it makes for a call that was cancelled is lost: no retry of it knows. A call that has been
        cancelled already begins none.

        Args:
          key: a name for it within the call.
          make: makes it; may be async. JSON must have a form for what it returns.

        Raises:
          RuntimeError: *make* asks for the same key.
        """
        if self._done is None:
            rounds = self._call.open_rounds()
            self._done = {} if rounds is None else rounds.done
        await trio.lowlevel.checkpoint()
        while (known := self._done.get(key)) is None:
            if (under_way := self._making.get(key)) is not None:
                if key in _MAKING.get():
                    raise RuntimeError(f"What makes {key!r} waits for {key!r}, and would do so for ever")
                await under_way.wait()
                continue
            under_way = self._making[key] = trio.Event()
            token = _MAKING.set(_MAKING.get() | {key})
            try:
                with trio.CancelScope(shield=True):
                    made = make()
                    known = self._done[key] = encode(await made if isawaitable(made) else made)
            finally:
                _MAKING.reset(token)
                del self._making[key]
                under_way.set()
        return msgspec.json.decode(known)

    # ----- What changed

    async def notify_tools_changed(self) -> None:
        """Tell all clients that want to know that the list of tools has changed, as adding and removing one does."""
        self._server.notify_tools_changed()
        await trio.lowlevel.checkpoint()

    async def notify_prompts_changed(self) -> None:
        """The same for prompts."""
        self._server.notify_prompts_changed()
        await trio.lowlevel.checkpoint()

    async def notify_resources_changed(self) -> None:
        """The same for resources and templates."""
        self._server.notify_resources_changed()
        await trio.lowlevel.checkpoint()

    async def notify_resource_updated(self, uri: str) -> None:
        """Tell the clients that are subscribed to *uri* that its content has changed."""
        self._server.notify_resource_updated(uri)
        await trio.lowlevel.checkpoint()

    # ----- What it asks its client

    def require(
        self,
        capability: Literal[
            "elicitation", "elicitation.url", "sampling", "sampling.tools", "sampling.context", "roots"
        ],
    ) -> None:
        """Go on only if the client declared *capability*. The methods below do so themselves.

        Raises:
          CapabilityError: it did not. A modern client gets error -32021 and what it would have to declare.
        """
        declared = self._call.capabilities
        revision = self._call.revision
        there: dict[str, bool] = {
            "elicitation": declared.can_elicit_form and revision.structured,
            "elicitation.url": declared.can_elicit_url and revision.icons,
            "sampling": declared.can_sample,
            "sampling.tools": declared.can_sample_with_tools and revision.icons,
            "sampling.context": declared.can_sample_with_context or (declared.can_sample and not revision.icons),
            "roots": declared.can_list_roots,
        }
        if capability not in there:
            raise ValueError(f"Unknown capability {capability!r}; known are {', '.join(there)}")
        if not there[capability]:
            # To a client that declared URLs only, an empty "elicitation" would say nothing new.
            needed = "elicitation.form" if capability == "elicitation" else capability
            name, _, part = needed.partition(".")
            raise CapabilityError({name: {part: {}} if part else {}}, what=capability)

    @overload
    async def elicit(
        self, message: str, schema: type[T], *, key: str | None = None, timeout: float = ASK_TIMEOUT
    ) -> ElicitResult[T]: ...
    @overload
    async def elicit(
        self, message: str, schema: dict[str, Any], *, key: str | None = None, timeout: float = ASK_TIMEOUT
    ) -> ElicitResult[dict[str, Any]]: ...
    async def elicit(
        self, message: str, schema: type[T] | dict[str, Any], *, key: str | None = None, timeout: float = ASK_TIMEOUT
    ) -> ElicitResult[T] | ElicitResult[dict[str, Any]]:
        """Ask the user to fill in a form.

        A modern call runs again when the answer is there, and must then ask the same: a question that says something
        else is asked anew. What depends on time or chance belongs in `once`.

        Never ask for passwords, keys or other secrets this way: `elicit_url` is for those (client/elicitation).

        Args:
          message: what to ask.
          schema: a msgspec Struct type with primitive fields, or a raw flat JSON Schema.
          key: a name for the question within the call; by default it is named after what it says. Give one to tell
            apart questions that say the same at the same time.
          timeout: seconds to wait for the answer (legacy; a modern call ends and is retried).

        Returns:
          The user's action, and the content if it is ``accept``: an instance of *schema*, or a dict.

        Raises:
          CapabilityError: the client did not declare elicitation, or its revision has none.
          ClientError: the client answered with an error, with something else, or not in time.
          TypeError: *schema* has a field that no form can have.
        """
        self.require("elicitation")
        form = Form(schema)

        def read(raw: msgspec.Raw) -> ElicitResult[T]:
            result = _elicited.decode(raw)
            if result.action == "accept":
                result.content = form.read({} if result.content is None else result.content)
            else:
                result.content = None
            return result

        params: dict[str, Any] = {"message": message, "requestedSchema": form.schema}
        if self._call.revision.icons:
            params = {"mode": "form"} | params
        return await self._call.ask("elicitation/create", params, read, key=key, timeout=timeout)

    async def elicit_url(
        self,
        message: str,
        url: str,
        *,
        key: str | None = None,
        elicitation_id: str | None = None,
        timeout: float = ASK_TIMEOUT,
    ) -> ElicitResult[None]:
        """Ask the user to open a URL: for credentials, payments and consent, which must not pass through the client.

        The URL must hold no secret and must not be pre-authenticated; check that who opens it is who started the call.

        Args:
          message: why.
          url: an absolute http(s) URL, the same in each round: an id made for it belongs in `once`.
          key: as in `elicit`.
          elicitation_id: the id that legacy revisions want; by default a random one.
          timeout: as in `elicit`.

        Raises:
          CapabilityError: the client did not declare elicitation by URL.
          ClientError: as in `elicit`.
          ValueError: *url* is no http(s) URL.
        """
        self.require("elicitation.url")
        parts = urlsplit(url)
        if parts.scheme not in {"https", "http"} or not parts.hostname:
            raise ValueError(f"{url!r} is no http(s) URL")
        params = {"mode": "url", "message": message, "url": url}
        if not self._call.revision.modern:
            params["elicitationId"] = elicitation_id or self._server.new_id()

        def read(raw: msgspec.Raw) -> ElicitResult[None]:
            result = _elicited.decode(raw)
            result.content = None
            return result

        return await self._call.ask("elicitation/create", params, read, key=key, timeout=timeout)

    async def sample(
        self,
        messages: str | Sequence[SamplingMessage],
        *,
        max_tokens: int,
        system_prompt: str | None = None,
        include_context: Literal["none", "thisServer", "allServers"] | None = None,
        temperature: float | None = None,
        stop_sequences: list[str] | None = None,
        model_preferences: ModelPreferences | None = None,
        metadata: dict[str, Any] | None = None,
        tools: list[Tool] | None = None,
        tool_choice: ToolChoice | None = None,
        key: str | None = None,
        timeout: float = ASK_TIMEOUT,
    ) -> CreateMessageResult:
        """Have the client's model write a message (client/sampling).

        As with `elicit`, a modern call that runs again must ask the same.

        Args:
          messages: the conversation; a string is one message of the user.
          max_tokens: how long the answer may be.
          system_prompt: for the model.
          include_context: what of the client's context to add.
          temperature: of the sampling.
          stop_sequences: what ends the answer.
          model_preferences: which model to use.
          metadata: for the provider.
          tools: what the model may call.
          tool_choice: whether it must.
          key: as in `elicit`.
          timeout: as in `elicit`.

        Raises:
          CapabilityError: the client did not declare sampling, or not with tools, or not with context.
          ClientError: as in `elicit`.
          ValueError: a tool use without its result, or a result among other content.
        """
        self.require("sampling")
        if tools is not None or tool_choice is not None:
            self.require("sampling.tools")
        if include_context not in {None, "none"}:
            self.require("sampling.context")
        conversation = [SamplingMessage("user", TextContent(messages))] if isinstance(messages, str) else list(messages)
        _check_tool_results(conversation)
        options = {
            "systemPrompt": system_prompt,
            "includeContext": include_context,
            "temperature": temperature,
            "stopSequences": stop_sequences,
            "modelPreferences": model_preferences,
            "metadata": metadata,
            "tools": tools,
            "toolChoice": tool_choice,
        }
        params = {"messages": conversation, "maxTokens": max_tokens} | {
            k: v for k, v in options.items() if v is not None
        }
        return await self._call.ask("sampling/createMessage", params, _sampled.decode, key=key, timeout=timeout)

    async def roots(self, *, key: str | None = None, timeout: float = ASK_TIMEOUT) -> list[Root]:
        """The places the client lets the server work in (client/roots).

        Raises:
          CapabilityError: the client did not declare roots.
          ClientError: as in `elicit`.
        """
        self.require("roots")
        result = await self._call.ask("roots/list", {}, _rooted.decode, key=key, timeout=timeout)
        return result.roots


def _check_tool_results(messages: list[SamplingMessage]) -> None:
    # "every assistant message with tool_use blocks MUST be followed by a user message that consists entirely of
    # tool_result blocks, with each tool_use matched by a corresponding tool_result" (client/sampling).
    open_uses: set[str] = set()
    for message in messages:
        blocks = message.content if isinstance(message.content, list) else [message.content]
        results = [block.tool_use_id for block in blocks if isinstance(block, ToolResultContent)]
        if results and len(results) != len(blocks):
            raise ValueError("A message with tool results must hold nothing else")
        if set(results) != open_uses or len(results) != len(open_uses):
            raise ValueError("Each tool use needs its one result in the next message")
        open_uses = {block.id for block in blocks if isinstance(block, ToolUseContent)}
        if (results and message.role != "user") or (open_uses and message.role != "assistant"):
            raise ValueError("The assistant uses tools, and the user's messages hold the results")
    if open_uses:
        raise ValueError("Each tool use needs its one result in the next message")
