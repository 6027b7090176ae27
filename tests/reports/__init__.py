"""What users of MCP servers have reported, replayed on this one. R01 to R75 are the reports' numbers.

What one process shows is replayed here on both fronts and on both stores: in memory on Trio's mock clock, and on a real
Redis on the real one, where time passes for what is kept by shortening what its keys have left. What needs a kernel has
a process of its own. What only a shared store shows is in `tests.replicas`: processes on Redis, on both fronts.
"""

from typing import Final

NOT_YET: Final[dict[int, str]] = {}
"""Reports without a test, and what a test of each needs."""

MEMORY_ONLY: Final[dict[int, str]] = {
    28: "the times of heartbeats, to a tenth of a second of the mock clock; on Redis they come in R29 and R33",
    74: "how long connections live, of which no store knows",
}
"""Reports of which Redis could show nothing, and why."""

REDIS_ONLY: Final[dict[int, str]] = {
    17: "several processes serve one session",
    18: "a process dies, and others go on with its sessions",
    21: "a process dies, and nothing of it stays in Redis",
    22: "replicas count a client's sessions together, by keys with a TTL of their own",
    23: "what one process forgets lives in another",
    24: "the store is away",
    25: "an answer comes in at another process",
    26: "a change is told in another process",
    72: "commands of a connection to Redis are cancelled",
}
"""Reports that a store within the process cannot show, and why."""
