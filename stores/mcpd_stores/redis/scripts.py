"""What has to happen in one step, as Lua that Redis runs.

The keys of one kind of records:

    {prefix}:session:<hash>   the record: a string whose TTL is its deadline
    {prefix}:session          the index: a sorted set of the hashes; the score is the record's deadline
    {prefix}:session:used     a sorted set of the hashes; the score is when it was used last, or until when it is in use
    {prefix}:session:owners   a hash: of the records that have an owner, whose they are
    {prefix}:session:of:<hash>   a sorted set of the hashes of one owner's records; the score is when it was used last

Scores are milliseconds. `load` is one GETEX and leaves the two sets behind by up to a second (`RedisRecords.refresh`),
so that they cost a request nothing. A record's own TTL is the truth: before anything is struck off or evicted for what
a set says, the record is asked. The sets' own TTL is longer than that of any record in them.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

from mcpd_stores.redis.replies import ReplyError, explain

if TYPE_CHECKING:
    from mcpd_stores.redis.link import Link, Word


class Script:
    """A script, known to Redis by its hash."""

    def __init__(self, *lua: str) -> None:
        """Args: *lua*: the pieces it consists of."""
        self.source: Final = "\n".join(lua)
        self.sha: Final = hashlib.sha1(self.source.encode()).hexdigest()  # noqa: S324 - Redis asks for it

    async def __call__(self, link: Link, keys: tuple[Word, ...], *arguments: Word, again: bool = False) -> Any:
        """Run it.

        Args:
          link: where.
          keys: the keys it works on.
          arguments: what else it needs.
          again: it may run twice when the connection breaks.

        Raises:
          StoreError: it failed, or Redis cannot be reached.
        """
        rest = (len(keys), *keys, *arguments)
        try:
            try:
                return await link.call("EVALSHA", self.sha, *rest, again=again)
            except ReplyError as exc:
                if exc.code != "NOSCRIPT":
                    raise
            # A new Redis, or a restarted one. EVAL tells it the script as well.
            return await link.call("EVAL", self.source, *rest, again=again)
        except ReplyError as exc:
            raise explain(exc) from exc


# KEYS: index, used. ARGV: the beginning of the records' names, that of the event logs' (empty: they have none).
_HEAD: Final = """
local index, used, stem, logs = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local owners = stem .. 'owners' -- none of KEYS: while a slot moves, all of them would have to be there
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local expired = 0

local function own(owner) return stem .. 'of:' .. owner end
local function extend(key, ttl)
  if redis.call('PTTL', key) < ttl + 60000 then redis.call('PEXPIRE', key, 2 * ttl + 60000) end
end
local function strike(member)
  local owner = redis.call('HGET', owners, member)
  if owner then
    redis.call('ZREM', own(owner), member)
    redis.call('HDEL', owners, member)
  end
  redis.call('ZREM', used, member)
  return redis.call('ZREM', index, member)
end
-- Sets the record's place in the index right, or strikes it off if it is gone. Returns what is left of its life.
local function correct(member)
  local left = redis.call('PTTL', stem .. member)
  if left <= 0 then
    expired = expired + strike(member)
    return 0
  end
  redis.call('ZADD', index, now + left, member)
  return left
end
-- The same for one that is used; its event log lives on with it.
local function use(member, till)
  local left = correct(member)
  if left > 0 then
    redis.call('ZADD', used, 'GT', till, member)
    local owner = redis.call('HGET', owners, member)
    if owner then extend(own(owner), left) end
    if logs ~= '' then
      local kept = redis.call('PTTL', logs .. member)
      if kept > 0 and kept < left then redis.call('PEXPIRE', logs .. member, left) end
    end
  end
  return left
end
local function outlive(ttl)
  extend(index, ttl)
  extend(used, ttl)
  extend(owners, ttl)
end
"""

CREATE: Final = Script(
    _HEAD,
    """
-- ARGV: stem, logs, member, record, ttl, capacity (-1: none), whether it may evict, its owner (empty: none), what that
-- one may have, members that it must not evict...
local member, record, ttl, capacity, may_evict = ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7] == '1'
local owner, share = ARGV[8], tonumber(ARGV[9])
if redis.call('EXISTS', stem .. member) == 1 then return {'exists', 0, 0} end

-- Two go for each that comes, if they have expired: the sets do not grow beyond what is alive.
for _, old in ipairs(redis.call('ZRANGEBYSCORE', index, '-inf', now, 'LIMIT', 0, 2)) do correct(old) end

local evicted, steps, position, spared = 0, 0, 0, {}
for i = 10, #ARGV do spared[ARGV[i]] = true end

-- Lets a record give way, unless it was used and the sets have not heard of it yet.
local function give_way(other)
  local deadline = tonumber(redis.call('ZSCORE', index, other) or 0)
  local left = correct(other)
  if math.abs(now + left - deadline) > 5 then -- 5 ms: clocks within Redis differ by that much
    if left > 0 then use(other, now) end
  else
    redis.call('UNLINK', stem .. other)
    if logs ~= '' then redis.call('UNLINK', logs .. other) end
    strike(other)
    evicted = evicted + 1
  end
end

while owner ~= '' and redis.call('ZCARD', own(owner)) >= share do
  steps = steps + 1
  if steps > 5000 then return {'share', evicted, expired} end
  local overdue = redis.call('ZRANGEBYSCORE', index, '-inf', now, 'LIMIT', 0, 1)[1]
  if overdue then
    correct(overdue)
  else
    local oldest = redis.call('ZRANGE', own(owner), position, position, 'WITHSCORES')
    local other = oldest[1]
    if not may_evict or not other then return {'share', evicted, expired} end
    local last = tonumber(redis.call('ZSCORE', used, other) or 0)
    if last > tonumber(oldest[2]) then
      redis.call('ZADD', own(owner), last, other) -- it was used since; the set hears of that only here
    elseif last > now then
      return {'share', evicted, expired}
    elseif spared[other] then
      position = position + 1
    else
      give_way(other)
    end
  end
end

position = 0
while capacity >= 0 and redis.call('ZCARD', index) >= capacity do
  steps = steps + 1
  if steps > 5000 then return {'full', evicted, expired} end -- Redis has others to serve as well
  local overdue = redis.call('ZRANGEBYSCORE', index, '-inf', now, 'LIMIT', 0, 1)[1]
  if overdue then
    correct(overdue)
  else
    local oldest = redis.call('ZRANGE', used, position, position, 'WITHSCORES')
    local other = oldest[1]
    if not may_evict or not other or tonumber(oldest[2]) > now then
      return {'full', evicted, expired}
    end
    if spared[other] then
      position = position + 1
    else
      give_way(other)
    end
  end
end

redis.call('SET', stem .. member, record, 'PX', ttl)
if owner ~= '' then
  redis.call('ZADD', own(owner), now, member)
  redis.call('HSET', owners, member, owner)
end
use(member, now)
outlive(ttl)
return {'created', evicted, expired}
""",
)

SAVE: Final = Script(
    _HEAD,
    """
-- ARGV: stem, logs, member, expected, new, ttl
local record = stem .. ARGV[3]
if redis.call('GET', record) ~= ARGV[4] then return 0 end
redis.call('SET', record, ARGV[5], 'PX', ARGV[6])
outlive(use(ARGV[3], now))
return 1
""",
)

RENEW: Final = Script(
    _HEAD,
    """
-- ARGV: stem, logs, ttl, for how long they are in use, members...
for i = 5, #ARGV do
  if redis.call('PEXPIRE', stem .. ARGV[i], ARGV[3]) == 1 then use(ARGV[i], now + ARGV[4]) end
end
outlive(tonumber(ARGV[3]))
return redis.status_reply('OK')
""",
)

REFRESH: Final = Script(
    _HEAD,
    """
-- ARGV: stem, logs, then in turn a member, and how long ago it was used
local longest = 0
for i = 3, #ARGV, 2 do longest = math.max(longest, use(ARGV[i], now - ARGV[i + 1])) end
if longest > 0 then outlive(longest) end
return expired
""",
)

COUNT: Final = Script(
    _HEAD,
    """
-- ARGV: stem, logs, how many to correct at most. Returns whether those were all, how many are alive if so, and
-- how many had expired.
local overdue = redis.call('ZRANGEBYSCORE', index, '-inf', now, 'LIMIT', 0, ARGV[3])
for _, member in ipairs(overdue) do correct(member) end
return {#overdue < tonumber(ARGV[3]) and 1 or 0, redis.call('ZCARD', index), expired}
""",
)

PAGE: Final = Script(
    _HEAD,
    """
-- ARGV: stem, logs, how many, and of the last one shown its score and the member (empty: begin)
-- It goes by deadline. A record that is used meanwhile moves to the end, where it is met again; none is passed over.
local first = 0
if ARGV[5] then
  -- The one shown last may be gone, and many may have its score: look for its place by halves.
  local score, beyond = tonumber(ARGV[4]), redis.call('ZCARD', index)
  while first < beyond do
    local middle = math.floor((first + beyond) / 2)
    local there = redis.call('ZRANGE', index, middle, middle, 'WITHSCORES')
    local other = tonumber(there[2])
    if other < score or (other == score and there[1] <= ARGV[5]) then first = middle + 1 else beyond = middle end
  end
end
local members = redis.call('ZRANGE', index, first, first + ARGV[3] - 1, 'WITHSCORES')
local found = {}
for i = 1, #members, 2 do
  local record = stem .. members[i]
  found[#found + 1] = {members[i], members[i + 1], redis.call('PTTL', record), redis.call('GET', record)}
end
return found
""",
)

PEEK: Final = Script(
    _HEAD,
    """
-- ARGV: stem, logs, member
return {redis.call('PTTL', stem .. ARGV[3]), redis.call('GET', stem .. ARGV[3])}
""",
)

DELETE: Final = Script(
    _HEAD,
    """
-- ARGV: stem, logs, member
strike(ARGV[3])
if logs ~= '' then redis.call('UNLINK', logs .. ARGV[3]) end
return redis.call('UNLINK', stem .. ARGV[3])
""",
)

APPEND: Final = Script(
    """
-- KEYS: log, the session's record. ARGV: channel, stream, the event, what it costs, bytes to keep, TTL without a record
-- An event's ID is its score: the previous ID and what it costs, so IDs are byte offsets. They begin at the time in
-- microseconds, so a log that expired and began anew does not give an ID twice.
local newest = redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')
local id
if newest[2] then
  id = tonumber(newest[2]) + ARGV[4]
else
  local time = redis.call('TIME')
  id = time[1] * 1000000 + time[2]
end
local text = string.format('%.0f', id)
redis.call('ZADD', KEYS[1], text, text .. ' ' .. ARGV[3])
local dropped = redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. string.format('%.0f', id - ARGV[5]))
-- It goes with its session. What is appended after the session's end stays for a moment, for who is still reading.
local left = redis.call('PTTL', KEYS[2])
redis.call('PEXPIRE', KEYS[1], left > 0 and left or ARGV[6])
redis.call('PUBLISH', ARGV[1], ARGV[2])
return {text, dropped}
""",
)

FORGET: Final = Script(
    """
-- KEYS: log. ARGV: channel
redis.call('UNLINK', KEYS[1])
redis.call('PUBLISH', ARGV[1], '')
return redis.status_reply('OK')
""",
)
