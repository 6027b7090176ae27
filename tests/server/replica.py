"""Requests straight to a `Core`: of any principal, at any time, to any of several replicas on one store."""

import itertools
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import trio

from mcpd import Server, Settings
from mcpd.core import Core
from mcpd.ports import Store
from mcpd.protocol.requests import read_meta
from mcpd.protocol.revisions import LATEST
from mcpd.protocol.types import ClientCapabilities
from mcpd.server.call import Call
from mcpd.server.principal import Principal
from mcpd.stores import open_store

EPOCH = 1_800_000_000.0
ADA = Principal("https://issuer.example", "ada")
EVE = Principal("https://issuer.example", "eve")
OTHER_ADA = Principal("https://other.example", "ada")


class Replica:
    """One `Core` and its modern clients. Its wall clock is Trio's, so that `MockClock` rules both."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.ids = itertools.count(1)
        core.tasks.now = now
        core.dispatcher.offer.sealer._now = now

    async def answer(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        principal: Principal | None = None,
        capabilities: Mapping[str, Any] | None = None,
    ) -> tuple[int, dict[str, Any]]:
        """The status and the JSON-RPC response of one modern request."""
        answer = await self.core.dispatcher.answer(self.call(method, params, principal, capabilities))
        assert answer is not None, "it was cancelled"
        return answer.status, json.loads(answer.body)

    def call(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        principal: Principal | None = None,
        capabilities: Mapping[str, Any] | None = None,
    ) -> Call:
        """The call, not begun."""
        raw = msgspec.Raw(json.dumps(dict(params or {})).encode())
        return Call(
            id=next(self.ids),
            method=method,
            params=raw,
            meta=read_meta(raw),
            revision=LATEST,
            capabilities=msgspec.convert(dict(capabilities or {}), ClientCapabilities),
            client_info=None,
            log_level=None,
            headers=None,
            principal=principal,
        )

    async def result(self, method: str, params: Mapping[str, Any] | None = None, **kwargs: Any) -> dict[str, Any]:
        """The result of a request that must succeed."""
        _, answer = await self.answer(method, params, **kwargs)
        assert "result" in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    async def error(self, method: str, params: Mapping[str, Any] | None = None, **kwargs: Any) -> dict[str, Any]:
        """The error of a request that must fail."""
        _, answer = await self.answer(method, params, **kwargs)
        assert "error" in answer, answer
        error: dict[str, Any] = answer["error"]
        return error


def now() -> float:
    """The wall clock of all replicas."""
    return EPOCH + trio.current_time()


@asynccontextmanager
async def running(server: Server, store: Store | str = "memory", **settings: Any) -> AsyncGenerator[Replica, None]:
    """A replica of *server* on *store*, up while this is open."""
    core = Core(server, open_store(store) if isinstance(store, str) else store, Settings(**settings))
    replica = Replica(core)
    async with core.running():
        yield replica
