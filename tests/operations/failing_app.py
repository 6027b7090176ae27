"""A server whose background tasks fail on demand."""

import trio

from mcpd import Server
from tests.harness.tasks import fail, tasks_in

server = Server("failing", version="1")


@server.tool
async def break_down(name: str) -> str:
    """Let the background task of that name fail, and wait for what becomes of it."""
    root = trio.lowlevel.current_root_task()
    assert root is not None
    (task,) = (task for path, task in tasks_in(root.child_nurseries) if path.endswith(name))
    fail(task)
    await trio.sleep_forever()
    return "never"
