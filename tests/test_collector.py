"""The garbage collector as a serving process has it."""

import subprocess
import sys

SERVING = """
import gc, weakref
from mcpd.collector import YOUNG, settle

settle()
assert gc.get_freeze_count() > 1_000

# As many objects as ten thousand open streams are.
before = [each["collections"] for each in gc.get_stats()]
streams = [[None] for _ in range(350_000)]
young, middle, full = (each["collections"] - number for each, number in zip(gc.get_stats(), before, strict=True))
assert young > 100, young
assert full == 0, full

# What an application leaves behind in cycles is found all the same.
class Node:
    pass

node = Node()
node.itself = node
gone = weakref.ref(node)
del node
more = [[None] for _ in range(2 * YOUNG)]
assert gone() is None
"""


def test_open_streams_bring_no_full_collection_and_cycles_are_still_found() -> None:
    done = subprocess.run([sys.executable, "-c", SERVING], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
