"""One request on its way through the server: what is known of it, and where what it causes goes.

A transport makes a `Call` for each request and gives it an `Outlet`. The server layer knows no transport: it
reads the call and writes to the outlet.
"""

from __future__ import annotations

import hashlib
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import msgspec
import trio

from mcpd.errors import INTERNAL_ERROR, ClientError
from mcpd.protocol.jsonrpc import encode_foreign

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from mcpd.errors import ProtocolError
    from mcpd.protocol.headers import Headers
    from mcpd.protocol.jsonrpc import RequestId
    from mcpd.protocol.requests import CallToolParams, Meta
    from mcpd.protocol.revisions import Revision
    from mcpd.protocol.types import ClientCapabilities, Implementation, LoggingLevel
    from mcpd.server.principal import Owner, Principal
    from mcpd.server.rounds import Rounds

T = TypeVar("T")


class Outlet(Protocol):
    """Where the messages go that precede a request's response, and how its client is asked something."""

    async def send(self, message: bytes) -> None:
        """Send a notification that belongs to the request, in order, before its response.

        Waits while the client's buffer is full. What nobody can receive is dropped.
        """
        ...

    async def ask(
        self, method: str, params: dict[str, Any], read: Callable[[msgspec.Raw], T], *, key: str | None, timeout: float
    ) -> T:
        """Ask the client and return what *read* makes of the result.

        Args:
          method: ``elicitation/create``, ``sampling/createMessage`` or ``roots/list``.
          params: the params to send.
          read: turns the result into what the caller wants; raises ValueError for one that does not fit.
          key: a name for the question, unique within the call; None numbers it.
          timeout: seconds to wait for the answer.

        Raises:
          ClientError: the client answered with an error, with something that does not fit, or not in time.
        """
        ...

    async def close_stream(self) -> None:
        """Close the HTTP connection that carries the request's stream, if that can be resumed; else do nothing."""
        ...


class DetachedOutlet(Outlet, Protocol):
    """The outlet of a call that runs as a task, or is to become one."""

    async def start(self) -> None:
        """Answer the request with the task; from now on the call runs as that."""
        ...


class SessionState(Protocol):
    """What a handler sees of the legacy session its call belongs to.

    Values are anything msgspec encodes to JSON. They live as long as the session, in the store, so every
    replica sees them.
    """

    @property
    def id(self) -> str:
        """The session ID."""
        ...

    async def get(self, key: str, default: Any = None) -> Any:
        """The value kept under *key*, or *default*.

        Raises:
          StoreError: the store cannot be reached.
        """
        ...

    async def set(self, key: str, value: Any) -> None:
        """Keep *value* under *key*; None removes it.

        Raises:
          TypeError: JSON has no form for *value*.
          ValueError: the session's state would grow past its bound.
          StoreError: the store cannot be reached, or the session has ended.
        """
        ...

    async def update(self, key: str, change: Callable[[Any], Any], default: Any = None) -> Any:
        """Replace the value by ``change(value)`` as one step and return the new one.

        *change* may run more than once, when others change the session at the same time. Raises as `set` does.
        """
        ...


class LegacySession(SessionState, Protocol):
    """What the protocol's own methods change of a session."""

    async def initialized(self) -> None:
        """The client has finished its side of the initialization."""
        ...

    async def set_log_level(self, level: LoggingLevel) -> None:
        """Send no log message below *level* from now on."""
        ...

    async def subscribe(self, uri: str) -> None:
        """Tell the session of updates of this resource.

        Raises:
          ProtocolError: it has too many subscriptions.
        """
        ...

    async def unsubscribe(self, uri: str) -> None:
        """No longer tell the session of updates of this resource."""
        ...

    @property
    def ended(self) -> bool:
        """Whether it is known here that the session is over, and what runs for it is to stop."""
        ...

    async def add_task(self, task_id: str, *, gone: Collection[str]) -> bool:
        """The task is one of the session's, and those *gone* are no more; False when it has as many as it may."""
        ...

    async def task_ids(self) -> list[str]:
        """The session's tasks, the oldest first; some may be gone."""
        ...


class CallEndedError(BaseException):
    """The call has ended, and who is asking its client cannot be cancelled: a thread, or a shielded task.

    Not an `Exception`, like ``trio.Cancelled``: a handler's ``except Exception`` is not to go on with the call.
    """


class _Nowhere:
    """The outlet of a call that has none yet."""

    async def send(self, message: bytes) -> None:
        await trio.lowlevel.checkpoint()

    async def ask(
        self, method: str, params: dict[str, Any], read: Callable[[msgspec.Raw], T], *, key: str | None, timeout: float
    ) -> T:
        raise ClientError(INTERNAL_ERROR, "Nobody can be asked here")

    async def close_stream(self) -> None:
        await trio.lowlevel.checkpoint()


NOWHERE: Final[Outlet] = _Nowhere()


def hashed(session_id: str) -> str:
    """What stands for a session in logs and traces: equal for equal sessions, and of no use to anybody."""
    return hashlib.sha256(session_id.encode()).hexdigest()[:12]


CURRENT: Final[ContextVar[tuple[RequestId, str | None] | None]] = ContextVar("mcpd call", default=None)
"""The request id and the session ID of the call that runs here, for the log. Not the call: what a handler starts may
outlive it, and must not keep it."""


class Call(msgspec.Struct, kw_only=True, weakref=True, eq=False):
    """One request: its envelope, its client, its outlet, and the cancel scope its handler runs in."""

    id: RequestId
    method: str
    params: msgspec.Raw
    meta: Meta
    revision: Revision
    capabilities: ClientCapabilities
    client_info: Implementation | None
    log_level: LoggingLevel | None
    headers: Headers | None
    session: LegacySession | None = None
    principal: Principal | None = None
    owner: Owner = ""
    scope: trio.CancelScope | None = None
    """What its handler runs in: lent, and entered already, or else the dispatcher's own."""
    outlet: Outlet = NOWHERE
    """Set by the transport, which needs the call to make it."""
    lifespan: Any = None
    progress: float | None = None
    tool_params: CallToolParams | None = None
    """The params of ``tools/call``, where the transport has had to read them."""
    answer: ProtocolError | None = None
    cancelled: bool = False
    ended: bool = False
    """Its handler is done, and a scope that was lent is no longer its own."""
    background: DetachedOutlet | None = None
    """Set if the call runs as a task, or is to become one."""
    rounds: Rounds | None = None
    """Where the questions of a modern call go."""
    first_round: Callable[[Call], Rounds] | None = None
    """Makes `rounds` when they are needed; None if the call may ask nothing, or had them from the beginning."""
    asking: list[trio.CancelScope] | None = None
    """What waits for answers to other questions."""

    async def ask(
        self, method: str, params: dict[str, Any], read: Callable[[msgspec.Raw], T], *, key: str | None, timeout: float
    ) -> T:
        """Ask the client, as its era has it. Arguments and errors are those of `Outlet.ask`.

        Raises:
          TypeError, ValueError: JSON has no form for *params*.
        """
        encode_foreign(params)
        rounds = self.open_rounds()
        if rounds is not None:
            return await rounds.ask(method, params, read, key=key)
        if self.asking is None:
            self.asking = []
        with trio.CancelScope() as waiting:
            self.asking.append(waiting)
            try:
                return await self.outlet.ask(method, params, read, key=key, timeout=timeout)
            finally:
                self.asking.remove(waiting)
        raise CallEndedError

    def open_rounds(self) -> Rounds | None:
        """`rounds`, made now if they are not there and may be."""
        if self.rounds is None and self.first_round is not None:
            self.rounds = self.first_round(self)
        return self.rounds

    def detached(self, background: DetachedOutlet) -> Call:
        """The same call, with a scope and an outlet of its own: to outlive its request."""
        call = Call(
            id=self.id,
            method=self.method,
            params=self.params,
            meta=self.meta,
            revision=self.revision,
            capabilities=self.capabilities,
            client_info=self.client_info,
            log_level=self.log_level,
            headers=self.headers,
            session=self.session,
            principal=self.principal,
            owner=self.owner,
        )
        call.outlet = call.background = background
        return call

    def cancel(self, answer: ProtocolError | None = None) -> None:
        """Stop the handler. Its request is answered with *answer*; with None it gets no response.

        "Receivers of a cancellation notification SHOULD [...] not send a response" (basic/utilities/cancellation).
        """
        self.cancelled = True
        self.answer = answer
        if self.scope is not None and not self.ended:
            self.scope.cancel()
        self.over()

    def over(self) -> None:
        """Nobody waits for the call any more, so nobody it asks is to hold up who cannot be cancelled: its threads."""
        for waiting in self.asking or ():
            waiting.cancel()
