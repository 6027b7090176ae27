"""The store in Redis or Valkey: any replica serves any session, and a restart of mcpd loses none.

    store.py    RedisStore: what stands behind the entry points; puts the rest together
    address.py  what the URL says
    dial.py     redis-py connects, authenticates, asks Sentinel or the cluster: blocking, in a worker thread
    link.py     one connection that many tasks share, on Trio: pipelining, cancellation, reconnecting
    replies.py  what Redis's errors mean and what to do about them
    scripts.py  what has to happen in one step, as Lua
    records.py, events.py, bus.py   the three ports

Redis 6.2 or later, or any Valkey; alone, with replicas and Sentinel, or as a cluster. Every key has a TTL at every
moment, and its name begins with ``{prefix}:``, so all keys of one application are in one slot of a cluster: a cluster
is there for its fail-over, and different applications (prefixes) spread over its nodes. No key name holds anything a
client
presents: session IDs are hashed.
"""

try:
    import hiredis as _hiredis
    import redis as _redis
except ImportError as exc:
    raise ImportError(f"it needs redis-py and hiredis; pip install 'trio-mcpd[redis]' ({exc})") from exc

from mcpd_stores.redis.store import RedisStore

__all__ = ["RedisStore"]

del _hiredis, _redis
