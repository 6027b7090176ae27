"""Serve it: `python -m tests.fixture_server --port 8000`, or `--stdio`."""

import argparse
import logging
import os
import signal
from functools import partial
from typing import Any

import msgspec
import trio

import mcpd
from tests.fixture_server import server


def settings_from_environment() -> dict[str, Any]:
    """What a test sets by `MCPD_...`, as for `mcpd serve`: MCPD_SESSION_IDLE=2 lets sessions live for two seconds."""
    variables = {f"MCPD_{field.name.upper()}": field for field in msgspec.structs.fields(mcpd.Settings)}
    return {
        field.name: msgspec.convert(os.environ[variable], field.type, strict=False)
        for variable, field in variables.items()
        if variable in os.environ
    }


async def told_to_stop() -> None:
    """Wait for the signal to stop: from a service manager, or from the keyboard."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        await anext(signals)


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.fixture_server", description="The server that the tests talk to.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one (default: %(default)s)")
    parser.add_argument("--store", default="memory", help="where sessions are kept (default: %(default)s)")
    parser.add_argument("--stdio", action="store_true", help="serve one client on standard input and output")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO)  # to stderr
    if options.stdio:
        trio.run(mcpd.serve_stdio, server)
        return
    settings = settings_from_environment() | {"host": options.host, "port": options.port, "store": options.store}
    trio.run(partial(mcpd.serve, server, stop=told_to_stop, **settings))


if __name__ == "__main__":
    main()
