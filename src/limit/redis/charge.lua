-- Decides a batch of requests, each against several limits: a request is charged to all of its limits, or to none.
-- Times are microseconds since the epoch on this server's clock, which is read once for the whole batch.
-- KEYS      the keys of all limits of all decisions, in order; on a cluster all of one slot
-- ARGV      the deadline, after which nothing is decided; the time before which nothing is; then a rule for every decision,
--           numbers separated by blanks: 1 to charge or 0 to read only, then every limit; or 2 to add calls that a gateway
--           admitted by itself, even without room, to the only key: its limit, then each instant, oldest first, with the
--           number of its calls, below 0 for calls that are given back
--             limit: calls, window in microseconds, and the sum of 1 for a shadow limit, 2 for an access, and 4 for a calendar
--             period, which lasts the window, and whose first microsecond follows
--             an access never refuses: while it has no room, the next limit has, if it has calls, and neither is charged
-- returns   integers: the time, and nothing else outside these times; then for every decision 1 if it is admitted, 0 if not,
--           and for every limit:
--             room       1 if this limit had room for the call, 0 if not; -1 if its key is damaged: nothing is decided
--             used       calls in the window, with this one if it was charged
--             growsAt    when the remaining calls next grow
--
-- A key holds the log of its admitted calls as one string: a header, and a ring of slots, oldest first, big-endian.
--   header  version of the format, 0 (1 byte), capacity in slots (3), first slot in use (4), slots in use (4), calls ever
--           admitted (6), of these no longer held (6), times of the newest and of the oldest slot (7 each)
--   slot    time of its last call (7), calls ever admitted up to and including it (6)
-- Above 1000 calls per window, the calls of a thousandth of the window share a slot, and count until its last call leaves:
-- longer than they should, never shorter. The calls of a calendar period share a slot. Times never decrease within a log: if
-- the clock went back by more than a window, its calls are taken as made now. A key expires when its newest slot leaves the
-- window. A key with any other content, or of another version, is damaged.

local HEADER, HEADER_BYTES, SLOT, SLOT_BYTES = '>I4I4I4I6I6I7I7', 38, '>I7I6', 13
-- Maximum slots of a log that is read and written as a whole, and maximum calls per window without shared slots.
local SMALL, EXACT = 8, 1000
local KEYS, ARGV, call, pcall = KEYS, ARGV, redis.call, redis.pcall
local floor, ceil, min, max, huge = math.floor, math.ceil, math.min, math.max, math.huge
local pack, unpackBytes, sub, gmatch = struct.pack, struct.unpack, string.sub, string.gmatch

local time = call('TIME')
local now = time[1] * 1000000 + time[2]

-- A request that waited at a stalled server has timed out at the gateway: do not charge it.
if now > tonumber(ARGV[1]) or now < tonumber(ARGV[2]) then return { now } end

-- Returns time and cumulative count of a slot, 0 being the oldest. The only function, as each script call recreates them all.
local function slot(log, index)
  local at = HEADER_BYTES + (log.first + index) % log.capacity * SLOT_BYTES
  if log.whole then return unpackBytes(SLOT, log.raw, at + 1) end
  return unpackBytes(SLOT, call('GETRANGE', log.key, at, at + SLOT_BYTES - 1))
end

-- Read and check every key before the first write: Redis does not roll back a script that fails.
local logs, answer, size = {}, { now }, 1
for i = 1, #KEYS do
  local name = KEYS[i]
  if not logs[name] then
    local raw = pcall('GETRANGE', name, 0, HEADER_BYTES + SMALL * SLOT_BYTES - 1)
    local capacity, first, held, total, gone, newest, oldest = 0, 0, 0, 0, 0, 0, 0
    local damaged = type(raw) ~= 'string' or raw ~= '' and #raw < HEADER_BYTES
    if not damaged and raw ~= '' then
      capacity, first, held, total, gone, newest, oldest = unpackBytes(HEADER, raw)
      -- The version is the first byte of the capacity.
      damaged = capacity >= 2 ^ 24 or first >= capacity or held > capacity or gone > total
        or HEADER_BYTES + capacity * SLOT_BYTES ~= (capacity <= SMALL and #raw or call('STRLEN', name))
      if damaged then held, total, gone = 0, 0, 0 end
    end
    -- `whole`: `raw` is the complete string and is updated with each change. Otherwise it is only the beginning.
    logs[name] = {
      key = name, raw = raw, damaged = damaged, whole = capacity <= SMALL, capacity = capacity, first = first,
      held = held, total = total, gone = gone, newest = newest, oldest = oldest,
    }
  end
end

-- Parsed rules, by their text: many decisions have the same one.
local rules, key = {}, 0
for decision = 3, #ARGV do
  local rule = rules[ARGV[decision]]
  if not rule then
    rule = {}
    for number in gmatch(ARGV[decision], '%S+') do rule[#rule + 1] = tonumber(number) end
    rules[ARGV[decision]] = rule
  end
  local adding, charging = rule[1] == 2, rule[1] > 0
  local stop = adding and 2 or #rule
  -- Find the calls that have left the window of each limit, and whether it has room.
  local admitted, at, last, access = true, 2, key, nil
  while at <= stop do
    last = last + 1
    local limit, window, flags, log = rule[at], rule[at + 1], rule[at + 2], logs[KEYS[last]]
    local start = flags >= 4 and rule[at + 3]
    local horizon = start and start - 1 or now - window
    at = at + (start and 4 or 3)
    if log.held > 0 and log.newest - now > window then
      -- The clock went back by more than a window: the key must not stay full for longer than one window.
      log.raw = ('\0'):rep(HEADER_BYTES) .. pack(SLOT, now, log.total)
      log.whole, log.capacity, log.first, log.held, log.newest, log.oldest = true, 1, 0, 1, now, now
      log.dirty = log.dirty or charging
    end
    if log.held > 0 and log.oldest <= horizon then
      -- Drop the slots that have left, to be written if the call is charged. A galloping search, as they are usually few.
      local when, gone = slot(log, 0)
      local left, step, beyond, upTo = 1, 1, log.held + 1, nil
      while beyond - left > 1 do
        local probe = beyond > log.held and min(left + step, log.held) or floor((left + beyond) / 2)
        when, upTo = slot(log, probe - 1)
        if when > horizon then beyond, log.oldest = probe, when else left, gone, step = probe, upTo, step * 2 end
      end
      log.first, log.held, log.gone = (log.first + left) % log.capacity, log.held - left, gone
    end
    local used = log.total - log.gone
    local room = adding or used < limit
    log.window, log.start, log.room, log.pays = window, start, room, room
    if access then
      -- `pays`: the call is charged to this limit and to its access, rather than to neither.
      if not access.room and used > 0 and limit > 0 then log.room, log.pays = true, false end
      access.pays, access = log.pays, nil
    end
    if flags % 4 >= 2 then access = log end
    if log.damaged or not log.room and flags % 4 == 0 then admitted = false end
  end

  size = size + 1
  answer[size] = admitted and 1 or 0
  at = 2
  for index = key + 1, last do
    local limit, window, log = rule[at], rule[at + 1], logs[KEYS[index]]
    local start = rule[at + 2] >= 4 and rule[at + 3]
    local span = start and huge or limit > EXACT and ceil(window / EXACT) or 1
    at = at + (start and 4 or 3)
    for each = adding and at or 1, charging and admitted and log.pays and (adding and #rule or 1) or 0, 2 do
      local instant, calls = now, 1
      if adding then instant, calls = min(rule[each], now), max(rule[each + 1], log.gone - log.total) end
      if calls < 0 and log.total + calls == log.gone then
        log.total, log.held, log.dirty = log.gone, 0, true
      elseif instant > (start and start - 1 or now - window) and calls ~= 0 then
        -- Add the calls to the newest slot, or to a new one.
        local held, when = log.held, instant
        log.total = log.total + calls
        if held > 0 and (log.newest >= instant or floor(log.newest / span) == floor(instant / span)) then
          when = max(log.newest, instant)
        else
          if held == log.capacity then
            -- Copy the slots, oldest first, to twice the capacity, but at most to the capacity that the limit needs.
            local capacity = max(held + 1, min(limit, EXACT + 2, max(4, 2 * held)))
            local all = log.whole and log.raw or call('GETRANGE', log.key, 0, -1)
            local from = HEADER_BYTES + log.first * SLOT_BYTES
            local slots = sub(all, from + 1, HEADER_BYTES + held * SLOT_BYTES) .. sub(all, HEADER_BYTES + 1, from)
            log.raw = ('\0'):rep(HEADER_BYTES) .. slots .. ('\0'):rep((capacity - held) * SLOT_BYTES)
            log.whole, log.capacity, log.first = not adding or capacity <= SMALL, capacity, 0
            -- Many additions follow: write their slots one by one, rather than copy the whole string for each.
            if not log.whole then call('SET', log.key, log.raw) end
          end
          held = held + 1
        end
        log.held, log.newest, log.oldest = held, when, held == 1 and when or log.oldest
        local begin = HEADER_BYTES + (log.first + held - 1) % log.capacity * SLOT_BYTES
        log.dirty = true
        if log.whole then
          log.raw = sub(log.raw, 1, begin) .. pack(SLOT, when, log.total) .. sub(log.raw, begin + SLOT_BYTES + 1)
        else
          call('SETRANGE', log.key, begin, pack(SLOT, when, log.total))
        end
      end
    end

    local used, growsAt = log.total - log.gone, now
    if start or limit == 0 then
      growsAt = (start or now) + window
    elseif used > 0 and used < limit and log.held == 1 then
      -- The only slot may still get calls until its span ends.
      growsAt = (floor(log.oldest / span) + 1) * span - 1 + window
    elseif used > 0 then
      -- The first slot to leave; if the limit was lowered, the first that leaves fewer than `limit` calls.
      local low, high = 0, used > limit and log.held - 1 or 0
      while low < high do
        local middle = floor((low + high) / 2)
        local _, upTo = slot(log, middle)
        if upTo > log.total - limit then high = middle else low = middle + 1 end
      end
      growsAt = (low == 0 and log.oldest or slot(log, low)) + window
    end
    answer[size + 1], answer[size + 2], answer[size + 3] = log.damaged and -1 or log.room and 1 or 0, used, growsAt
    size = size + 3
  end
  key = last
end

for name, log in pairs(logs) do
  if log.dirty then
    local window, start = log.window, log.start
    local ttl = ceil(((start and log.newest < start + window and start or log.newest) + window - now) / 1000)
    local header = pack(HEADER, log.capacity, log.first, log.held, log.total, log.gone, log.newest, log.oldest)
    if log.whole then
      call('SET', name, header .. sub(log.raw, HEADER_BYTES + 1), 'PX', ttl)
    else
      call('SETRANGE', name, 0, header)
      call('PEXPIRE', name, ttl)
    end
  end
end

return answer
