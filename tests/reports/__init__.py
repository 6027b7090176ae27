"""What users of MCP servers have reported, replayed on this one. R01 to R75 are the reports' numbers.

What one process shows is replayed here on both fronts, in memory and on Trio's mock clock, and what needs a kernel in
a process of its own. What only a shared store shows is in `tests.replicas`: processes on Redis, on both fronts.
"""

from typing import Final

NOT_YET: Final[dict[int, str]] = {}
"""Reports without a test, and what a test of each needs."""
