-- Settles calls: each is charged the points that it used, at the instant of its charge, in place of
-- those that it reserved. All of them once, even if they are sent again. The log of a key: layout.lua.
--
-- A call's slot is found by its instant; the calls ever admitted of this slot and of all after it
-- change by the same number:
--
--     slots      | 10:01 |  3 |   | 10:02 | 9 |   | 10:03 | 10 |      the call of 10:02 reserved 6
--     used 4     | 10:01 |  3 |   | 10:02 | 7 |   | 10:03 |  8 |      two points fewer
--
-- KEYS: the mark of this gateway, which has the number of the last settlements that are done; the
-- logs.
--
-- ARGV:
--   1. the number of these settlements
--   2. the time after which nothing is done
--   3. for how many milliseconds the mark is kept
--   Then for each settlement: the position of its log in KEYS; the earliest and the latest instant of
--   the call; how much later its slot may be, as calls share one; the points that it used beyond those
--   reserved, negative if fewer.
--
-- A call whose slot is not found has left the window, or was reset. A damaged key is left alone: the
-- next decision reports it.
--
-- Returns the time, and nothing else if it is too late; then 1.

if tonumber(call('GET', KEYS[1]) or 0) >= tonumber(ARGV[1]) then return { now, 1 } end
if now > tonumber(ARGV[2]) then return { now } end

-- The format of a slot's time, without its count.
local TIME = '>I7'

-- Returns the format of slots that follow each other.
local function formatOf(slots) return '>' .. string.rep('I7I6', slots) end

-- Returns the string of a log and its header; nil if there is none, or it is damaged.
local function read(key)
  local raw = pcall('GET', key)
  -- Fails again if the key is not damaged: the command is refused.
  if type(raw) == 'table' and not match(raw.err, '^WRONGTYPE') then call('GET', key) end
  if type(raw) ~= 'string' or #raw < HEADER_BYTES then return nil end
  local capacity, first, held, total, gone, newest, oldest = unpackBytes(HEADER, raw)
  if not isSound(capacity, first, held, total, gone, #raw) then return nil end
  return raw, capacity, first, held, total, gone, newest, oldest
end

-- Settles a call, whose slot is that of its instant, or the next one if it is at most `late` later.
-- Points are added in the last of the slots that may have the call, or taken from the first ones:
-- neither lets more calls pass than the call's own slot would. A slot without points is removed.
local function settle(key, earliest, latest, late, points)
  local raw, capacity, first, held, total, gone, newest, oldest = read(key)
  if not raw then return end
  local begin, isTurned = HEADER_BYTES + first * SLOT_BYTES, first + held > capacity
  if isTurned then
    -- The slots in the order of their times, which are then all written.
    raw = sub(raw, 1, HEADER_BYTES) .. sub(raw, begin + 1) .. sub(raw, HEADER_BYTES + 1, begin)
    first, begin = 0, HEADER_BYTES
  end

  local before, high = 0, held
  while before < high do
    local middle = floor((before + high) / 2)
    local when = unpackBytes(TIME, raw, begin + middle * SLOT_BYTES + 1)
    if when < earliest then before = middle + 1 else high = middle end
  end
  if before == held then return end

  -- Time and cumulative count of each slot from the call's first on.
  local from, count = begin + before * SLOT_BYTES, 2 * (held - before)
  local format = formatOf(held - before)
  local values = { unpackBytes(format, raw, from + 1) }
  if values[1] > max(latest, earliest + late) then return end
  -- No more than the log can count.
  points = min(points, MOST - total)
  local last = 1
  while last + 2 < count and values[last + 2] <= latest do last = last + 2 end

  local kept, settled, upTo = 0, 0, gone
  if before > 0 then newest, upTo = unpackBytes(SLOT, raw, from - SLOT_BYTES + 1) end
  for at = 1, last, 2 do
    local when, counted = values[at], values[at + 1]
    local change = 0
    if points < 0 then
      change = max(points - settled, upTo - counted)
    elseif at == last then
      change = points
    end
    settled = settled + change
    if counted + change > upTo then
      values[kept + 1], values[kept + 2] = when, counted + settled
      kept = kept + 2
    end
    upTo = counted
  end
  for at = last + 2, count, 2 do
    values[kept + 1], values[kept + 2] = values[at], values[at + 1] + settled
    kept = kept + 2
  end

  held = before + kept / 2
  if held == 0 then return call('UNLINK', key) end
  if kept > 0 then newest = values[kept - 1] end
  if before == 0 then oldest = values[1] end
  if kept < count then format = formatOf(kept / 2) end
  local slots = pack(format, unpack(values, 1, kept))
  if isTurned then from, slots = begin, sub(raw, begin + 1, from) .. slots end
  local header = pack(HEADER, capacity, first, held, total + settled, gone, newest, oldest)
  if from == HEADER_BYTES then return call('SETRANGE', key, '0', header .. slots) end
  if slots ~= '' then call('SETRANGE', key, from, slots) end
  call('SETRANGE', key, '0', header)
end

for at = 4, #ARGV, 5 do
  local position, earliest, latest = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  settle(KEYS[position], earliest, latest, tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4]))
end
call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
return { now, 1 }
