"""What the scripts of this folder share: a step is one thing a client does, and each is reported on a line of its own.

    OK   NAME: what came back
    FAIL NAME: the exception

The scripts run in other environments than the tests, so this needs nothing but anyio, which each client brings along.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable

import anyio

STEP_WITHIN = 10.0  # seconds


class Steps:
    """The steps of one script."""

    def __init__(self) -> None:
        self.fails = 0

    async def __call__(self, name: str, action: Awaitable[object]) -> None:
        """Take one step."""
        try:
            with anyio.fail_after(STEP_WITHIN):
                result = await action
        except Exception as error:  # noqa: BLE001 (whatever a client raises is the step's result)
            self.fails += 1
            print(f"FAIL {name}: {type(error).__name__}: {_line(error)}")
        else:
            print(f"OK   {name}: {_line(result)}")


def _line(value: object) -> str:
    return " ".join(str(value).split())[:4000]


def run(script: Callable[[Steps], Awaitable[None]], backend: str) -> None:
    """Run a script and end the process, with code 1 if a step failed."""
    steps = Steps()
    began = time.monotonic()
    anyio.run(script, steps, backend=backend)
    print(f"done: backend={backend} fails={steps.fails} seconds={time.monotonic() - began:.1f}")
    sys.exit(1 if steps.fails else 0)


def filled_in(schema: dict[str, object]) -> dict[str, object]:
    """What a user who takes the first choice everywhere puts into a form."""
    properties = schema.get("properties")
    assert isinstance(properties, dict), schema
    return {name: _first(field) for name, field in properties.items()}


def _first(field: dict[str, object]) -> object:
    kind = field.get("type")
    if kind == "boolean":
        return True
    if kind in {"integer", "number"}:
        return 1
    if kind == "array":
        items = field["items"]
        assert isinstance(items, dict), field
        return [_choice(items)]
    return _choice(field)


def _choice(field: dict[str, object]) -> object:
    if isinstance(choices := field.get("enum"), list):
        return choices[0]
    titled = field.get("oneOf") or field.get("anyOf")
    return titled[0]["const"] if isinstance(titled, list) else "x"
