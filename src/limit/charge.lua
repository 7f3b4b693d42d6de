-- Decides a batch of requests, each against several limits at once: all of a request's limits are charged, or none.
--
-- KEYS      the keys of every limit of every decision, in order. On a cluster all share one slot.
-- ARGV      for every decision:
--             n          how many limits it has; negative: only look, charge nothing
--             then n times: limit, window in microseconds, 1 for a shadow limit or 0
-- returns   a flat list of integers:
--             now        this server's clock in microseconds since the epoch, read once for the whole batch
--             then for every decision:
--             admitted   1 or 0
--             then for every limit of it:
--               room       1 if the limit, looked at alone, had room for the call, or 0
--               remaining  calls that may still be made, after this one where it was charged
--               growsAt    when remaining next grows, in microseconds since the epoch
--
-- A key holds the log of its admitted calls as one string: a header, and a ring of slots, oldest first.
--   header  capacity in slots (4 bytes), first slot in use (4), slots in use (4), calls ever admitted (6), of these no
--           longer held (6), time of the newest slot (7); big-endian
--   slot    time in microseconds (7), calls ever admitted up to and with it (6)
-- Above 1000 calls per window, calls share slots of a thousandth of the window, rounded up: later than they were made,
-- never earlier. Times never decrease within a log. Reading never changes one, but where the clock went back by more
-- than a window: what is held is then taken for calls made now. A key expires when its newest slot leaves the window.

local HEADER, SLOT = '>I4I4I4I6I6I7', '>I7I6'
local HEADER_BYTES, SLOT_BYTES = 31, 13
-- Logs of up to so many slots are read and written whole.
local SMALL = 4
local SMALL_BYTES = HEADER_BYTES + SMALL * SLOT_BYTES
local EXACT = 1000

local call, floor, ceil, min, max = redis.call, math.floor, math.ceil, math.min, math.max
local pack, unpack_ = struct.pack, struct.unpack

local time = call('TIME')
local now = time[1] * 1000000 + time[2]

local logs = {}

local function open(key)
  local log = logs[key]
  if log then return log end
  log = { key = key, raw = call('GETRANGE', key, 0, SMALL_BYTES - 1) }
  if log.raw == '' then
    log.capacity, log.first, log.held, log.total, log.gone, log.newest = 0, 0, 0, 0, 0, 0
  else
    log.capacity, log.first, log.held, log.total, log.gone, log.newest = unpack_(HEADER, log.raw)
  end
  logs[key] = log
  return log
end

-- Where the slot of an index, counted from the oldest, stands in the string.
local function offset(log, index)
  return HEADER_BYTES + (log.first + index) % log.capacity * SLOT_BYTES
end

-- Time and cumulative count of a slot.
local function slot(log, index)
  local at = offset(log, index)
  if log.capacity <= SMALL then return unpack_(SLOT, log.raw, at + 1) end
  return unpack_(SLOT, call('GETRANGE', log.key, at, at + SLOT_BYTES - 1))
end

local function write(log, index, when, count)
  local at = offset(log, index)
  local bytes = pack(SLOT, when, count)
  if log.capacity <= SMALL then
    log.raw = log.raw:sub(1, at) .. bytes .. log.raw:sub(at + SLOT_BYTES + 1)
  else
    call('SETRANGE', log.key, at, bytes)
  end
  log.newest = when
end

local function header(log)
  return pack(HEADER, log.capacity, log.first, log.held, log.total, log.gone, log.newest)
end

-- Makes room for one more slot: a copy, oldest first, of twice the capacity but no more than is ever needed.
local function grow(log, enough)
  local capacity = max(log.held + 1, min(enough, max(SMALL, 2 * log.held)))
  local slots = ''
  if log.held > 0 then
    local whole = log.capacity <= SMALL and log.raw or call('GETRANGE', log.key, 0, -1)
    local from = offset(log, 0)
    slots = whole:sub(from + 1, HEADER_BYTES + log.capacity * SLOT_BYTES) .. whole:sub(HEADER_BYTES + 1, from)
    slots = slots:sub(1, log.held * SLOT_BYTES)
  end
  log.capacity, log.first = capacity, 0
  log.raw = header(log) .. slots .. ('\0'):rep((capacity - log.held) * SLOT_BYTES)
  if capacity > SMALL then call('SET', log.key, log.raw) end
end

local function quantum(limit, window)
  return limit > EXACT and ceil(window / EXACT) or 1
end

-- How many leading slots have left the window, how many calls are gone with them. Galloping: mostly it is few.
local function look(log, window)
  local horizon = now - window
  if log.held == 0 then return 0, log.gone end
  local when, count = slot(log, 0)
  if when > horizon then return 0, log.gone, when end
  local left, gone, step = 1, count, 1
  while left + step <= log.held do
    when, count = slot(log, left + step - 1)
    if when > horizon then break end
    left, gone, step = left + step, count, step * 2
  end
  local beyond = min(left + step, log.held + 1)
  while beyond - left > 1 do
    local middle = floor((left + beyond) / 2)
    when, count = slot(log, middle - 1)
    if when > horizon then beyond = middle else left, gone = middle, count end
  end
  return left, gone
end

-- A clock that went back by more than a window must not lock a key for longer than one.
local function bringBack(log, limit, window, charging)
  if log.held == 0 or log.newest - now <= window + quantum(limit, window) then return end
  log.first, log.held = 0, 1
  if not charging then
    log.raw = log.raw:sub(1, HEADER_BYTES) .. pack(SLOT, now, log.total)
    log.capacity, log.newest = 1, now
    return
  end
  write(log, 0, now, log.total)
  log.window, log.dirty = window, true
end

local function add(log, limit, window, left, gone)
  log.first, log.held, log.gone = log.capacity == 0 and 0 or (log.first + left) % log.capacity, log.held - left, gone
  local span = quantum(limit, window)
  local at = span == 1 and now or ceil(now / span) * span
  log.window, log.dirty = window, true
  if log.held > 0 and log.newest >= at then
    log.total = log.total + 1
    write(log, log.held - 1, log.newest, log.total)
    return
  end
  if log.held == log.capacity then grow(log, min(limit, EXACT + 2)) end
  log.held, log.total = log.held + 1, log.total + 1
  write(log, log.held - 1, at, log.total)
end

-- When remaining next grows: the oldest call leaves, or with none remaining the last of those in excess.
local function growsAt(log, limit, window, left, used)
  if limit == 0 then return now + window end
  if used == 0 then return now end
  if used <= limit then return (slot(log, left)) + window end
  local enough = log.total - limit + 1
  local low, high = left, log.held - 1
  while low < high do
    local middle = floor((low + high) / 2)
    local _, count = slot(log, middle)
    if count >= enough then high = middle else low = middle + 1 end
  end
  return (slot(log, low)) + window
end

local answer = { now }
local key, arg = 0, 1
while arg <= #ARGV do
  local count = tonumber(ARGV[arg])
  local charging = count > 0
  count = charging and count or -count
  local quotas, admitted = {}, true
  for i = 1, count do
    local limit, window = tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2])
    local shadow = ARGV[arg + 3] == '1'
    arg = arg + 3
    local log = open(KEYS[key + i])
    bringBack(log, limit, window, charging)
    local left, gone = look(log, window)
    local room = log.total - gone < limit
    if not room and not shadow then admitted = false end
    quotas[i] = { log, limit, window, room, left, gone, log.total }
  end
  key, arg = key + count, arg + 1
  answer[#answer + 1] = admitted and 1 or 0
  for i = 1, count do
    local log, limit, window, room, left, gone, total = unpack(quotas[i])
    if charging and admitted and room then
      -- The same key twice in one decision: what was seen of it no longer holds.
      if log.total ~= total then left, gone = look(log, window) end
      add(log, limit, window, left, gone)
      left = 0
    end
    local used = log.total - gone
    answer[#answer + 1] = room and 1 or 0
    answer[#answer + 1] = max(0, limit - used)
    answer[#answer + 1] = growsAt(log, limit, window, left, used)
  end
end

for _, log in pairs(logs) do
  if log.dirty then
    local ttl = ceil((log.newest + log.window - now) / 1000)
    if log.capacity <= SMALL then
      call('SET', log.key, header(log) .. log.raw:sub(HEADER_BYTES + 1), 'PX', ttl)
    else
      call('SETRANGE', log.key, 0, header(log))
      call('PEXPIRE', log.key, ttl)
    end
  end
end

return answer
