-- Decides a batch of requests, each against several limits at once: all of a request's limits are charged, or none.
--
-- KEYS      the keys of every limit of every decision, in order. On a cluster all share one slot.
-- ARGV      when the caller stops waiting, in microseconds on this server's clock: later, nothing is decided
--           then for every decision:
--             n          how many limits it has; negative: only look, charge nothing
--             then n times: limit, window in microseconds, and 0, or 1 for a shadow limit, or -c to add c calls that were
--             counted elsewhere, room or not
-- returns   a flat list of integers:
--             now        this server's clock in microseconds since the epoch, read once for the whole batch;
--                        alone, where it is past the deadline
--             then for every decision:
--             admitted   1 or 0, or -1 where one of its keys is damaged: nothing is decided then
--             then for every limit of it:
--               room       1 if the limit, looked at alone, had room for the call, or 0; -1 where its key is damaged
--               remaining  calls that may still be made, after this one where it was charged
--               growsAt    when remaining next grows, in microseconds since the epoch
--
-- A key holds the log of its admitted calls as one string: a header, and a ring of slots, oldest first.
--   header  version of the format, 0 (1 byte), capacity in slots (3), first slot in use (4), slots in use (4), calls ever
--           admitted (6), of these no longer held (6), times of the newest and of the oldest slot (7 each); big-endian
--   slot    time of its last call in microseconds (7), calls ever admitted up to and with it (6)
-- Above 1000 calls per window, the calls of a thousandth of the window share a slot, and count until its last one leaves:
-- longer than they should, never shorter. Times never decrease within a log. Reading never changes one, but where the clock
-- went back by more than a window: what is held is then taken for calls made now. A key expires when its newest slot leaves
-- the window. A key that holds anything else is damaged, as is one of another version.

local HEADER, SLOT = '>I4I4I4I6I6I7I7', '>I7I6'
local HEADER_BYTES, SLOT_BYTES = 38, 13
-- Logs of up to so many slots are read and written whole.
local SMALL = 8
local SMALL_BYTES = HEADER_BYTES + SMALL * SLOT_BYTES
local EXACT = 1000
local VERSIONS = 2 ^ 24

local call, pcall, floor, ceil, min, max = redis.call, redis.pcall, math.floor, math.ceil, math.min, math.max
local pack, unpackBytes, sub = struct.pack, struct.unpack, string.sub

local time = call('TIME')
local now = time[1] * 1000000 + time[2]

-- What waited in a stalled server's queue was given up, and decided otherwise: it must not be charged now.
local deadline = tonumber(ARGV[1])
if now > deadline then return { now } end

-- Closures are made anew with every call of the script, so there are three of them only.

-- Time and cumulative count of a slot, counted from the oldest.
local function slot(log, index)
  local at = 38 + (log.first + index) % log.capacity * 13
  if log.whole then return unpackBytes('>I7I6', log.raw, at + 1) end
  return unpackBytes('>I7I6', call('GETRANGE', log.key, at, at + 12))
end

local function write(log, index, when)
  local at = 38 + (log.first + index) % log.capacity * 13
  local bytes = pack('>I7I6', when, log.total)
  if log.whole then
    log.raw = sub(log.raw, 1, at) .. bytes .. sub(log.raw, at + 14)
  else
    call('SETRANGE', log.key, at, bytes)
  end
  log.newest = when
  if index == 0 then log.oldest = when end
end

-- The log of a key; its `damaged` is true where the key holds none.
local function load(name)
  local raw = pcall('GETRANGE', name, 0, SMALL_BYTES - 1)
  local capacity, first, held, total, gone, newest, oldest = 0, 0, 0, 0, 0, 0, 0
  local damaged = type(raw) ~= 'string'
  if not damaged and raw ~= '' then
    if #raw < HEADER_BYTES then
      damaged = true
    else
      capacity, first, held, total, gone, newest, oldest = unpackBytes(HEADER, raw)
      damaged = capacity >= VERSIONS or first >= capacity or held > capacity or gone > total
        or HEADER_BYTES + capacity * SLOT_BYTES ~= (capacity <= SMALL and #raw or call('STRLEN', name))
    end
  end
  -- `whole`: `raw` is the whole string and stays what it shall become; else it is no more than the beginning.
  return {
    key = name, raw = raw, damaged = damaged, whole = capacity <= SMALL, capacity = capacity, first = first,
    held = held, total = total, gone = gone, newest = newest, oldest = oldest, dirty = false,
    limit = 0, window = 0, span = 0, room = true, calls = 1,
  }
end

-- Every key is read and checked before the first write: what a script wrote stays, though it fails later.
local logs, dirty, answer, size = {}, {}, { now }, 1
for i = 1, #KEYS do
  local name = KEYS[i]
  if not logs[name] then logs[name] = load(name) end
end

local key, arg, args = 0, 2, #ARGV
while arg <= args do
  local count = tonumber(ARGV[arg])
  local charging = count > 0
  if not charging then count = -count end

  local damaged = false
  for i = key + 1, key + count do damaged = damaged or logs[KEYS[i]].damaged end
  -- Look at every limit: what has left its window, and has it room?
  local admitted = not damaged
  for i = key + 1, damaged and key or key + count do
    local at = arg + 3 * (i - key)
    local limit, window, flag = tonumber(ARGV[at - 2]), tonumber(ARGV[at - 1]), tonumber(ARGV[at])
    local span = limit > EXACT and ceil(window / EXACT) or 1
    local log = logs[KEYS[i]]
    if log.held > 0 and log.newest - now > window then
      -- The clock went back by more than a window, and must not lock the key for longer than one.
      log.raw = ('\0'):rep(HEADER_BYTES + SLOT_BYTES)
      log.whole, log.capacity, log.first, log.held = true, 1, 0, 1
      write(log, 0, now)
      if charging and not log.dirty then
        log.dirty = true
        dirty[#dirty + 1] = log
      end
    end
    local horizon, held = now - window, log.held
    if held > 0 and log.oldest <= horizon then
      -- Drop what has left, to be written if the call is charged. Galloping: mostly it is little.
      local when, gone = slot(log, 0)
      local left, step, beyond = 1, 1, held + 1
      while left + step <= held do
        local upTo
        when, upTo = slot(log, left + step - 1)
        if when > horizon then
          beyond, log.oldest = left + step, when
          break
        end
        left, gone, step = left + step, upTo, step * 2
      end
      while beyond - left > 1 do
        local middle = floor((left + beyond) / 2)
        local upTo
        when, upTo = slot(log, middle - 1)
        if when > horizon then beyond, log.oldest = middle, when else left, gone = middle, upTo end
      end
      log.first, log.held, log.gone = (log.first + left) % log.capacity, held - left, gone
    end
    local room = flag < 0 or log.total - log.gone < limit
    log.limit, log.window, log.span, log.room, log.calls = limit, window, span, room, flag < 0 and -flag or 1
    if not room and flag ~= 1 then admitted = false end
  end

  size = size + 1
  answer[size] = damaged and -1 or admitted and 1 or 0
  if damaged then
    for i = key + 1, key + count do
      answer[size + 1], answer[size + 2], answer[size + 3] = logs[KEYS[i]].damaged and -1 or 0, 0, 0
      size = size + 3
    end
  end
  for i = key + 1, damaged and key or key + count do
    local log = logs[KEYS[i]]
    local limit, window = log.limit, log.window
    if charging and admitted and log.room then
      -- Charge it: add the call to the newest slot, or to a new one.
      local held, span = log.held, log.span
      log.total = log.total + log.calls
      if held > 0 and (log.newest >= now or floor(log.newest / span) == floor(now / span)) then
        write(log, held - 1, max(log.newest, now))
      else
        if held == log.capacity then
          -- A copy, oldest first, of twice the capacity but no more than is ever needed.
          local capacity = max(held + 1, min(limit, EXACT + 2, max(4, 2 * held)))
          local slots = ''
          if held > 0 then
            local all = log.whole and log.raw or call('GETRANGE', log.key, 0, -1)
            local from = HEADER_BYTES + log.first * SLOT_BYTES
            slots = sub(all, from + 1, HEADER_BYTES + held * SLOT_BYTES) .. sub(all, HEADER_BYTES + 1, from)
          end
          log.raw = ('\0'):rep(HEADER_BYTES) .. slots .. ('\0'):rep((capacity - held) * SLOT_BYTES)
          log.whole, log.capacity, log.first = true, capacity, 0
        end
        log.held = held + 1
        write(log, held, now)
      end
      if not log.dirty then
        log.dirty = true
        dirty[#dirty + 1] = log
      end
    end

    local used = log.total - log.gone
    local growsAt
    if limit == 0 then
      growsAt = now + window
    elseif used == 0 then
      growsAt = now
    elseif used < limit and log.held == 1 then
      -- Its one slot may still take calls, until its span ends.
      growsAt = (floor(log.oldest / log.span) + 1) * log.span - 1 + window
    elseif used <= limit then
      growsAt = log.oldest + window
    else
      -- More than the limit, which was lowered: the last of those in excess must leave too.
      local enough, low, high = log.total - limit + 1, 0, log.held - 1
      while low < high do
        local middle = floor((low + high) / 2)
        local _, upTo = slot(log, middle)
        if upTo >= enough then high = middle else low = middle + 1 end
      end
      growsAt = slot(log, low) + window
    end
    answer[size + 1] = log.room and 1 or 0
    answer[size + 2] = used < limit and limit - used or 0
    answer[size + 3] = growsAt
    size = size + 3
  end
  key, arg = key + count, arg + 3 * count + 1
end

for i = 1, #dirty do
  local log = dirty[i]
  local header = pack(HEADER, log.capacity, log.first, log.held, log.total, log.gone, log.newest, log.oldest)
  local ttl = ceil((log.newest + log.window - now) / 1000)
  if log.whole then
    call('SET', log.key, header .. sub(log.raw, HEADER_BYTES + 1), 'PX', ttl)
  else
    call('SETRANGE', log.key, 0, header)
    call('PEXPIRE', log.key, ttl)
  end
end

return answer
