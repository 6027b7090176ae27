"""Several processes on one port: a parent that binds, starts the workers, and starts another when one dies.

The parent serves nothing. A signal to it goes to the workers, each of which drains as a single process would; a second
signal ends them at once. Workers share what they have in the store, so the store must be one that processes share.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import trio

from mcpd.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

logger: Final = logging.getLogger("mcpd.workers")
FOLDER: Final = "MCPD_WORKER_FOLDER"
"""Tells a worker that it is one, and in which folder the workers' own metrics are."""
PARENT: Final = "MCPD_WORKER_PARENT"
"""Tells a worker which file descriptor ends when its parent does."""
_BACKLOG: Final = 1024
_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 10.0
_STEADY: Final = 10.0
"""Seconds that a worker has to live for its end not to count as a failed start."""
_USAGE: Final = 2
"""The exit status of a worker that cannot be served as it was told."""


class Workers:
    """The parent of some workers."""

    def __init__(self, number: int, arguments: Sequence[str], sockets: dict[str, socket.socket]) -> None:
        """
        Args:
          number: how many workers.
          arguments: the command line of each, after ``python -m mcpd``.
          sockets: bound sockets by the variable that tells a worker of them.
        """  # noqa: D205, D212 - the class says it
        self._number = number
        self._command = [sys.executable, "-m", "mcpd", *arguments]
        self._sockets = sockets
        self._lifeline = -1
        self._processes: set[trio.Process] = set()
        self._stopped = trio.Event()
        self._failed: int | None = None
        self._again: int | None = None

    async def run(self, started: Callable[[], object]) -> int:
        """Keep the workers running until a signal comes and they have ended; returns the exit status.

        *started* is called once clients can connect and signals are heard.

        Raises:
          SettingError: no worker can be started with these arguments; its own words have been printed.
        """
        for sock in self._sockets.values():
            # Who connects before a worker is up, or while none is, waits for one.
            sock.listen(_BACKLOG)
        with tempfile.TemporaryDirectory(prefix="mcpd-") as folder, _pipe() as self._lifeline:
            async with trio.open_nursery() as nursery:
                await nursery.start(self._hear_signals)
                started()
                async with trio.open_nursery() as workers:
                    for _ in range(self._number):
                        workers.start_soon(self._keep_one, folder)
                nursery.cancel_scope.cancel()
        if self._failed is not None:
            raise SettingError(f"The workers cannot start: they exit with status {self._failed}")
        if self._again is not None:
            # The second signal does what it does to a program that does not listen.
            signal.signal(self._again, signal.SIG_DFL)
            os.kill(os.getpid(), self._again)
        return 0

    async def _keep_one(self, folder: str) -> None:
        pause = _FIRST_PAUSE
        while not self._stopped.is_set():
            began = trio.current_time()
            status = await self._run_one(folder)
            if self._stopped.is_set():
                return
            if status == _USAGE:
                # It was told something that can never work; so would the next one be.
                self._failed = status
                self._stop(signal.SIGTERM)
                return
            pause = _FIRST_PAUSE if trio.current_time() - began > _STEADY else min(pause * 2, _LONGEST_PAUSE)
            logger.warning("A worker ended with status %d; another one starts in %.1f s", status, pause)
            with trio.move_on_after(pause):
                await self._stopped.wait()

    async def _run_one(self, folder: str) -> int:
        descriptors = {name: sock.fileno() for name, sock in self._sockets.items()} | {PARENT: self._lifeline}
        environment = os.environ | {name: str(descriptor) for name, descriptor in descriptors.items()}
        process = await trio.lowlevel.open_process(
            self._command,
            stdin=subprocess.DEVNULL,
            env=environment | {FOLDER: folder},
            pass_fds=list(descriptors.values()),
        )
        self._processes.add(process)
        if self._stopped.is_set():
            process.terminate()  # the signal came while it was being started
        try:
            return await process.wait()
        finally:
            self._processes.discard(process)
            if process.returncode is None:
                process.kill()

    async def _hear_signals(self, *, task_status: trio.TaskStatus[None]) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            task_status.started()
            async for number in signals:
                if self._stopped.is_set():
                    self._again = number
                    self._stop(signal.SIGKILL)
                else:
                    self._stop(number)

    def _stop(self, number: int) -> None:
        self._stopped.set()
        for sock in self._sockets.values():
            sock.close()  # so that nobody can connect when the last worker has closed its own
        for process in self._processes:
            process.send_signal(signal.SIGTERM if number == signal.SIGINT else number)


@contextmanager
def _pipe() -> Generator[int, None, None]:
    """What the workers are given of a pipe into which nothing is written: it ends with this process."""
    ours, theirs = reversed(os.pipe())
    try:
        yield theirs
    finally:
        os.close(ours)
        os.close(theirs)


async def parent_gone() -> None:
    """Return when this is a worker whose parent has ended; never where there is no parent.

    The descriptor stays open, for a process that ends closes it.
    """
    descriptor = os.environ.get(PARENT)
    if descriptor is None:
        await trio.sleep_forever()
    else:
        await trio.lowlevel.wait_readable(int(descriptor))
