"""The store in this process's memory: nothing to install, nothing shared, gone with the process."""

from mcpd_stores.memory.bus import MemoryBus
from mcpd_stores.memory.events import MemoryEvents
from mcpd_stores.memory.records import MemoryRecords
from mcpd_stores.memory.store import SWEEP_EVERY, MemoryStore

__all__ = ["SWEEP_EVERY", "MemoryBus", "MemoryEvents", "MemoryRecords", "MemoryStore"]
