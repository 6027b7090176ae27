"""Handles: what the modern era has in place of sessions. State that a client carries from call to call by an opaque id.

"Servers that need to maintain state across calls [...] return an explicit handle" (2026-07-28, server/tools, "Stateful
Tools").
"""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio

from mcpd.errors import ShareFullError, StoreFullError, ToolError
from mcpd.memory import SMALL, MemoryGuard
from mcpd.protocol.jsonrpc import encode
from mcpd.shares import share_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpd.ports import Store
    from mcpd.server.principal import Owner

# The TTL is part of the handle, so that one look-up can renew it; a handle with another TTL is another handle, and
# unknown.
_ID: Final = re.compile(r"h([0-9a-f]{1,12})_[A-Za-z0-9_-]{24}")
MAX_VALUE: Final = 256 * 1024
"""Bytes one value may take."""


class Handles:
    """All handles of one server."""

    def __init__(
        self,
        store: Store,
        *,
        capacity: int,
        max_ttl: float,
        each: int | None = None,
        memory: MemoryGuard | None = None,
        rejected: dict[str, int] | None = None,
    ) -> None:
        """
        Args:
          store: where they are.
          capacity: how many.
          max_ttl: how long one may live, in seconds.
          each: how many each owner may have.
          memory: says when no more may come, and those that are there may not grow.
          rejected: counts what is refused, by reason: ``full`` or ``principal``.
        """  # noqa: D205, D212 - the class says it
        self._records = store.records("handle", capacity=capacity)
        self._max_ttl = max_ttl
        self._each = each
        self._rejected = {"full": 0, "principal": 0} if rejected is None else rejected
        self._memory = MemoryGuard(None) if memory is None else memory

    def of(self, principal: object, owner: Owner = "") -> OwnHandles:
        """The handles of whoever is asking; new ones go on the account of *owner*."""
        return OwnHandles(self, principal, owner)

    async def create(self, principal: object, value: Any, ttl: float, owner: Owner = "") -> str:
        """Keep *value* and return its handle."""
        if not 0 < ttl <= self._max_ttl:
            raise ValueError(f"A handle lives for up to {self._max_ttl:g} s, not {ttl!r}")
        data = _pack(value)
        if not self._memory.has_room(len(data)):
            raise ToolError("The server is short of memory for handles; delete one, or try again later")
        handle = f"h{max(1, round(ttl * 1000)):x}_{secrets.token_urlsafe(18)}"
        share = share_of(owner, self._each)
        try:
            await self._records.create(_key(handle, principal), data, ttl=_ttl(handle), spare=None, share=share)
        except ShareFullError:
            self._rejected["principal"] += 1
            raise ToolError(
                f"This client has its share of {self._each} handles (max_handles_per_principal); "
                "delete one, or try again later"
            ) from None
        except StoreFullError:
            self._rejected["full"] += 1
            raise ToolError("There are too many handles; delete one, or try again later") from None
        return handle

    async def load(self, principal: object, handle: str) -> bytes:
        """What is kept, used just now.

        Raises:
          ToolError: it is unknown, expired, deleted or somebody else's: one answer for all.
        """
        if _ID.fullmatch(handle) is None:
            await trio.lowlevel.checkpoint()
        else:
            data = await self._records.load(_key(handle, principal), ttl=_ttl(handle))
            if data is not None:
                return data
        raise ToolError("Unknown or expired handle")

    async def save(self, principal: object, handle: str, value: Any, expected: bytes) -> bool:
        """Replace what is kept, if it is still *expected*."""
        data = _pack(value)
        growth = len(data) - len(expected)
        if len(data) > SMALL and growth > 0 and not self._memory.has_room(growth):
            raise ToolError("The server is short of memory for a larger value; delete a handle, or try again later")
        return await self._records.save(_key(handle, principal), data, ttl=_ttl(handle), expected=expected)

    async def delete(self, principal: object, handle: str) -> bool:
        """Remove the handle, and say whether it was there."""
        if _ID.fullmatch(handle) is None:
            await trio.lowlevel.checkpoint()
            return False
        return await self._records.delete(_key(handle, principal))


class OwnHandles:
    """The handles of one principal: `mcpd.server.handles.PrincipalHandles`."""

    __slots__ = ("_handles", "_owner", "_principal")

    def __init__(self, handles: Handles, principal: object, owner: Owner) -> None:
        self._handles = handles
        self._principal = principal
        self._owner: Owner = owner

    async def create(self, value: Any, *, ttl: float = 3600.0) -> str:
        """Keep *value* and return a handle."""
        return await self._handles.create(self._principal, value, ttl, self._owner)

    async def get(self, handle: str) -> Any:
        """The value; the handle lives on from now."""
        return msgspec.json.decode(await self._handles.load(self._principal, handle))

    async def update(self, handle: str, change: Callable[[Any], Any]) -> Any:
        """Replace the value by ``change(value)`` as one step and return the new one."""
        while True:
            data = await self._handles.load(self._principal, handle)
            value = change(msgspec.json.decode(data))
            if await self._handles.save(self._principal, handle, value, data):
                return value

    async def set(self, handle: str, value: Any) -> None:
        """Replace the value."""
        await self.update(handle, lambda _: value)

    async def delete(self, handle: str) -> bool:
        """Remove the handle for good, and say whether it was there."""
        return await self._handles.delete(self._principal, handle)


def _pack(value: Any) -> bytes:
    data = encode(value)
    if len(data) > MAX_VALUE:
        raise ValueError(f"The value takes {len(data)} bytes, of at most {MAX_VALUE}")
    return data


def _ttl(handle: str) -> float:
    return int(handle[1:].partition("_")[0], 16) / 1000


def _key(handle: str, principal: object) -> str:
    owner = "" if principal is None else hashlib.sha256(encode(principal)).hexdigest()[:32]
    return f"{owner}.{handle}"
