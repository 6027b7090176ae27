"""Handles as handlers see them: state across calls, by ids that the client carries. `mcpd.handles` keeps them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpd.server.principal import Owner


class PrincipalHandles(Protocol):
    """``ctx.handles``: the handles of the principal who is asking. Nobody else's can be reached through it."""

    async def create(self, value: Any, *, ttl: float = 3600.0) -> str:
        """Keep *value* and return an unguessable handle for it, to be given to the client.

        Args:
          value: anything JSON has a form for, up to 256 KiB of it.
          ttl: seconds the handle lives after its last use.

        Raises:
          ToolError: there are too many handles, or the process is short of memory.
          ValueError: *ttl* is out of range, or *value* too large.
          TypeError: JSON has no form for *value*.
          StoreError: the store cannot be reached.
        """
        ...

    async def get(self, handle: str) -> Any:
        """The value; the handle lives on from now.

        Raises:
          ToolError: it is unknown, expired, deleted or somebody else's.
          StoreError: the store cannot be reached.
        """
        ...

    async def update(self, handle: str, change: Callable[[Any], Any]) -> Any:
        """Replace the value by ``change(value)`` as one step and return the new one.

        *change* may run more than once, when others change it at the same time. Raises as `get` and `create` do.
        """
        ...

    async def set(self, handle: str, value: Any) -> None:
        """Replace the value. Raises as `update` does."""
        ...

    async def delete(self, handle: str) -> bool:
        """Remove the handle for good, and say whether it was there."""
        ...


class HandleSource(Protocol):
    """Where handles are."""

    def of(self, principal: tuple[str, str] | None, owner: Owner, /) -> PrincipalHandles:
        """Those of one principal; new ones go on the account of *owner*."""
        ...
