"""The tasks of a Trio program, and how to let one of them fail where it waits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NoReturn

import trio


class InjectedError(Exception):
    """A fault that nobody has thought of."""


def tasks_in(nurseries: Iterable[trio.Nursery], path: str = "") -> Iterator[tuple[str, trio.lowlevel.Task]]:
    """All tasks in these nurseries and below, each with its name behind the names of those it belongs to."""
    for nursery in nurseries:
        for task in sorted(nursery.child_tasks, key=lambda each: each.name):
            name = f"{path} > {task.name}" if path else task.name
            yield name, task
            yield from tasks_in(task.child_nurseries, name)


def fail(task: trio.lowlevel.Task) -> None:
    """Raise `InjectedError` in the task, at the line where it waits."""

    def raise_it() -> NoReturn:
        raise InjectedError(task.name)

    # As a cancellation gets there, but it is none: nobody expects it.
    task._attempt_abort(raise_it)
