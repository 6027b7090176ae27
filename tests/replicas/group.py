"""Replicas as they are run: processes of ``python -m mcpd serve`` on one Redis."""

import os
import signal
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace

from tests.harness import Client, Process, Session, process

APP = "tests.replicas.app:server"
STATE_KEYS = {"MCPD_STATE_KEYS": "shared-by-the-replicas-of-a-test"}


@contextmanager
def replicas(number: int, url: str, *options: str, env: Mapping[str, str] | None = None) -> Generator[list[Process]]:
    """So many replicas on the store of that URL. One that the test has not killed must end well."""
    with ExitStack() as stack:
        started = [stack.enter_context(replica(url, *options, env=env)) for _ in range(number)]
        yield started
    assert {each.popen.returncode for each in started} <= {0, -signal.SIGKILL}, [each.stderr for each in started]


def replica(url: str, *options: str, env: Mapping[str, str] | None = None) -> AbstractContextManager[Process]:
    """One replica."""
    return process(APP, "--store", url, *options, env=STATE_KEYS | dict(env or {}), code=None)


def kill(victim: Process) -> None:
    """SIGKILL: nobody is told."""
    os.kill(victim.pid, signal.SIGKILL)
    victim.wait()


def at(session: Session, client: Client) -> Session:
    """The same session, used at another replica."""
    return replace(session, http=client)
