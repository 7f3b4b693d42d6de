-- Merges calls that a gateway admitted by itself into the log of their key, by their instants and
-- even without room; once, even if a merge is sent again. The log of a key: layout.lua.
--
-- KEYS: the mark of the merge, which holds its number once it is done; the key of the limit; the
-- keys of accesses.
--
-- ARGV:
--   1. the number of this merge
--   2. the time after which nothing is done
--   3. to 5. of the limit: the calls; the window; the first microsecond of the period, before which
--   nothing is done either, 0 if the window slides
--   6. the window of an access; -1 for those of tokens, which are as long as the limit's; 0 if there
--   are none
--   Then for each instant, oldest first: the instant, its calls, and the position of its access in
--   KEYS, 0 if it has none.
--
-- Returns the time, and nothing else outside these times; then 1 if the log has the calls, -1 if a
-- key is damaged.

local numbers = {}
for index, text in ipairs(ARGV) do numbers[index] = tonumber(text) end
local number, deadline, calls, window, start, together = unpack(numbers, 1, 6)
if tonumber(call('GET', KEYS[1]) or 0) >= number then return { now, 1 } end
if now < start or now > deadline then return { now } end

local horizon = start > 0 and start - 1 or now - window
-- The window of accesses, and the time after which they count.
local isOfToken = together == -1
local accessWindow, accessStart = isOfToken and window or together, isOfToken and start or 0
local accessHorizon = isOfToken and horizon or now - together
local span = start > 0 and huge or calls > EXACT and ceil(window / EXACT) or 1

-- Returns the slots of a log after `horizon`, oldest first, each with its own number of calls;
-- nothing if it is damaged.
local function read(key, horizon)
  local raw = pcall('GET', key)
  if raw == false then return {} end
  -- Fails again if the key is not damaged: the command is refused.
  if type(raw) == 'table' and not match(raw.err, '^WRONGTYPE') then call('GET', key) end
  if type(raw) ~= 'string' or #raw < HEADER_BYTES then return nil end
  local capacity, first, held, total, gone, newest = unpackBytes(HEADER, raw)
  if not isSound(capacity, first, held, total, gone, #raw) then return nil end
  local slots = {}
  for index = first, first + held - 1 do
    local when, upTo = unpackBytes(SLOT, raw, HEADER_BYTES + index % capacity * SLOT_BYTES + 1)
    -- The clock went back by more than a window.
    if newest - now > window then when = now end
    if when > horizon then slots[#slots + 1] = { when = when, calls = upTo - gone } end
    gone = upTo
  end
  return slots
end

-- Adds calls that are not older than those of the last slot.
local function append(slots, when, calls)
  local last = slots[#slots]
  if last and floor(last.when / span) == floor(when / span) then
    last.when, last.calls = when, last.calls + calls
  else
    slots[#slots + 1] = { when = when, calls = calls }
  end
end

-- Writes a log, whose calls leave at the end of a calendar period, or a window after the newest.
local function write(key, slots, window, start)
  if #slots == 0 then return call('UNLINK', key) end
  local total, ring = 0, {}
  for index, slot in ipairs(slots) do
    total = total + slot.calls
    ring[index] = pack(SLOT, slot.when, total)
  end
  local newest = slots[#slots].when
  local ttl = ttlOf(newest, window, start)
  local header = pack(HEADER, #slots, 0, #slots, total, 0, newest, slots[1].when)
  call('SET', key, header .. table.concat(ring), 'PX', ttl)
end

local logs = { [2] = read(KEYS[2], horizon) }
for index = 3, #KEYS do logs[index] = read(KEYS[index], accessHorizon) end
for index = 2, #KEYS do if not logs[index] then return { now, -1 } end end

-- Own calls and those of the log are sorted: the older of both is next.
local log, merged, nextSlot, isChanged = logs[2], {}, 1, false
for at = 7, #numbers, 3 do
  local instant, count, access = min(numbers[at], now), numbers[at + 1], logs[numbers[at + 2]]
  while log[nextSlot] and log[nextSlot].when <= instant do
    append(merged, log[nextSlot].when, log[nextSlot].calls)
    nextSlot = nextSlot + 1
  end
  local isWanted = instant > horizon
  if isWanted and access then
    -- Another gateway has charged the same access: its calls are free.
    local before, after = log[nextSlot - 1], log[nextSlot]
    if isOfToken then isWanted = #access == 0
    else isWanted = not (before and instant - before.when < together or after and after.when - instant < together) end
    if isWanted and instant > accessHorizon then access[#access + 1] = { when = instant, calls = 1 } end
  end
  if isWanted then
    append(merged, instant, count)
    isChanged = true
  end
end
for index = nextSlot, #log do append(merged, log[index].when, log[index].calls) end

if isChanged then
  write(KEYS[2], merged, window, start > 0 and start)
  for index = 3, #KEYS do write(KEYS[index], logs[index], accessWindow, accessStart > 0 and accessStart) end
end
-- No merge is repeated when its calls have left the window. After the answer, the gateway has the mark expire sooner.
local ttl = ceil(window / 1000) + 60000
call('SET', KEYS[1], number, 'PX', ttl)
return { now, 1 }
