"""The store of the documentation keeps the contract, and what it is for: sessions outlive the process."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest
import trio
from trio.testing import MockClock

import mcpd
from examples.sqlite_store import SQLiteStore
from mcpd.errors import StoreError
from mcpd.ports import Store
from mcpd.testing import store_contract
from tests.docs.pages import ROOT

HEADERS = {"accept": "application/json, text/event-stream"}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
COUNT = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "count", "arguments": {}}}


@pytest.mark.parametrize("check", store_contract.CHECKS, ids=lambda check: check.__name__)
async def test_it_keeps_the_contract(check: store_contract.Check, tmp_path: Path, mock_clock: MockClock) -> None:
    opened: list[SQLiteStore] = []

    @asynccontextmanager
    async def open_store() -> AsyncGenerator[tuple[Store, Store], None]:
        store = SQLiteStore(f"sqlite:{tmp_path / 'records.db'}")
        opened.append(store)
        yield store, store

    async def advance(seconds: float) -> None:
        # Records go by the wall clock, which must outlive the process; events and the sweep go by Trio's.
        await opened[-1].work(lambda db: db.execute("UPDATE records SET deadline = deadline - ?", [seconds]))
        mock_clock.jump(seconds)
        await trio.lowlevel.checkpoint()

    await check(open_store, advance)


async def test_a_session_outlives_its_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from durable import server

    url = f"sqlite:{tmp_path / 'sessions.db'}"
    found: list[int] = []
    session_id = ""
    for _ in range(3):
        async with trio.open_nursery() as nursery, httpx.AsyncClient(headers=HEADERS) as http:
            at = await nursery.start(partial(mcpd.serve, server, port=0, store=SQLiteStore(url)))
            if not session_id:
                session_id = (await http.post(at, json=INITIALIZE)).headers["mcp-session-id"]
            answer = await http.post(at, json=COUNT, headers={"mcp-session-id": session_id})
            found.append(answer.json()["result"]["structuredContent"]["result"])
            nursery.cancel_scope.cancel()
    assert found == [1, 2, 3]


async def test_a_file_that_cannot_be_used_is_a_store_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="unable to open database file"):
        await SQLiteStore(f"sqlite:{tmp_path / 'nowhere' / 'sessions.db'}").ping()
