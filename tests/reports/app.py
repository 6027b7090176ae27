"""What `tests.harness.process` serves for the reports that need a kernel."""

from __future__ import annotations

from mcpd import Context
from tests.reports.rig import Rig

rig = Rig()
server = rig.server


@server.tool
async def flood(count: int, ctx: Context) -> str:
    """Say 1 KB so many times."""
    for _ in range(count):
        await ctx.info("x" * 1_000)
    return "all"


@server.tool
async def outcomes() -> dict[str, int]:
    """How calls of `wait` have ended so far, and how many are under way."""
    return {"done": rig.outcomes["done"], "cancelled": rig.outcomes["cancelled"], "under_way": rig.holding}
