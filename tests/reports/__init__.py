"""What users of MCP servers have reported, replayed on this one. R01 to R75 are the reports' numbers."""

from typing import Final

NOT_YET: Final = {
    17: "several replicas behind a balancer, on a store that they share",
    18: "the death of the replica that a session was opened on",
    21: "keys that a dead replica leaves in a shared store",
    22: "a cap for each principal",
    23: "several replicas, of which one has seen nothing of a session for long",
    24: "a shared store that goes away",
    25: "a question asked by one replica and answered through another",
    26: "a change told by one replica, and heard on another",
    72: "connections to a shared store, and requests cancelled while they use one",
}
"""Reports without a test here, and what a test of each needs."""
