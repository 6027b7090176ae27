"""Python's garbage collector in a server's process: rarely, and never over what is there to stay.

mcpd drops what it no longer needs at once and makes no cycles; what there is to collect comes from applications. A full
collection visits every object that could be part of one: a quarter of a second with ten thousand open streams, in which
nobody is answered. By default there would be one whenever some ten thousand streams have had their heartbeat.
"""

from __future__ import annotations

import gc
from typing import Final

YOUNG: Final = 2_000
"""New objects after which the youngest are looked at."""


def settle() -> None:
    """Start-up is over. What has been made stays; a full collection then needs a million new objects that stay too.

    For a process that does nothing but serve: it is a setting of the whole interpreter, no library's to make.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, 5, 100)
