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

local numbers = {}
for index, text in ipairs(ARGV) do numbers[index] = tonumber(text) end
local number, deadline, life = numbers[1], numbers[2], numbers[3]
if tonumber(call('GET', KEYS[1]) or 0) >= number then return { now, 1 } end
if now > deadline then return { now } end

-- Reads a log; nil if there is none, or it is damaged.
local function read(key)
  local raw = pcall('GET', key)
  -- Fails again if the key is not damaged: the command is refused.
  if type(raw) == 'table' and not match(raw.err, '^WRONGTYPE') then call('GET', key) end
  if type(raw) ~= 'string' or #raw < HEADER_BYTES then return nil end
  local capacity, first, held, total, gone, newest, oldest = unpackBytes(HEADER, raw)
  if not isSound(capacity, first, held, total, gone, #raw) then return nil end
  return {
    key = key, raw = raw, capacity = capacity, first = first, held = held, total = total, gone = gone,
    newest = newest, oldest = oldest,
  }
end

-- Returns time and cumulative count of a slot, 0 being the oldest.
local function slot(log, index)
  return unpackBytes(SLOT, log.raw, HEADER_BYTES + (log.first + index) % log.capacity * SLOT_BYTES + 1)
end

-- Returns the first slot, and the last, that may have a call: those of its instant, else the next one
-- if it is no later than calls that share a slot; nil if there is none.
local function slotsOf(log, earliest, latest, late)
  local low, high = 0, log.held
  while low < high do
    local middle = floor((low + high) / 2)
    if slot(log, middle) < earliest then low = middle + 1 else high = middle end
  end
  if low == log.held or slot(log, low) > max(latest, earliest + late) then return nil end
  local last = low
  while last + 1 < log.held and slot(log, last + 1) <= latest do last = last + 1 end
  return low, last
end

-- Writes slots from an index on, in the ring.
local function write(log, index, slots)
  local from = (log.first + index) % log.capacity * SLOT_BYTES
  local room = log.capacity * SLOT_BYTES - from
  if slots ~= '' then call('SETRANGE', log.key, HEADER_BYTES + from, sub(slots, 1, room)) end
  if #slots > room then call('SETRANGE', log.key, HEADER_BYTES, sub(slots, room + 1)) end
end

-- Adds points to a call, in the last of the slots that may have it, or takes them from the first ones:
-- neither lets more calls pass than the call's own slot would. A slot without points is removed.
local function settle(log, points, first, last)
  local upTo, newest, oldest, settled = log.gone, log.newest, log.oldest, 0
  if first > 0 then newest, upTo = slot(log, first - 1) else oldest = nil end
  local slots, count = {}, 0
  for index = first, last do
    local when, total = slot(log, index)
    local change = points < 0 and max(points - settled, upTo - total) or index == last and points or 0
    if total + change > upTo then
      count, newest, oldest = count + 1, when, oldest or when
      slots[count] = pack(SLOT, when, min(total + settled + change, MOST))
    end
    settled, upTo = settled + change, total
  end
  for index = last + 1, log.held - 1 do
    local when, total = slot(log, index)
    count, newest, oldest = count + 1, when, oldest or when
    slots[count] = pack(SLOT, when, min(total + settled, MOST))
  end
  local held = first + count
  if held == 0 then return call('UNLINK', log.key) end
  write(log, first, table.concat(slots))
  local header = pack(HEADER, log.capacity, log.first, held, min(log.total + settled, MOST), log.gone, newest, oldest)
  call('SETRANGE', log.key, '0', header)
end

for at = 4, #numbers, 5 do
  local position, earliest, latest, late, points = unpack(numbers, at, at + 4)
  local log = read(KEYS[position])
  if log then
    local first, last = slotsOf(log, earliest, latest, late)
    if first then settle(log, points, first, last) end
  end
end
call('SET', KEYS[1], number, 'PX', life)
return { now, 1 }
