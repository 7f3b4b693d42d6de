-- The log of the admitted calls of a key, as one string: a header, and a ring of slots, oldest
-- first. All numbers are big-endian, all times microseconds since the epoch on this server's clock.
--
--   header (38 bytes)  | version 0: 1 | capacity: 3 | first: 4 | held: 4 | total: 6 | gone: 6 | newest: 7 | oldest: 7 |
--   slot (13 bytes)    | time of its last call: 7 | calls ever admitted, up to and including it: 6 |
--
-- A call with a cost of n counts as n calls.
--
--       first             first + held - 1              capacity  slots of the ring, in which the last is followed by the first
--         v                      v                      total     calls ever admitted
--   | - | oldest | ... | ... | newest | - | - |         gone      of these, calls that are no longer held
--
-- Above 1000 calls per window, the calls of a thousandth of the window share a slot, and count
-- until its last call leaves: longer than they should, never shorter. The calls of a calendar
-- period share a slot. Times never decrease within a log: if the clock went back by more than a
-- window, its calls are taken as made now. A key expires when its newest slot leaves the window. A
-- key with any other content, or of another version, is damaged.

local HEADER, HEADER_BYTES, SLOT, SLOT_BYTES = '>I4I4I4I6I6I7I7', 38, '>I7I6', 13
-- The most that a log counts, and the total at which its numbers are made smaller by those gone.
local MOST, LARGE = 2 ^ 48 - 1, 2 ^ 47
-- Maximum limit whose calls have slots of their own, as MAX_EXACT of memory/call-log.ts.
local EXACT = 1000
local KEYS, ARGV, call, pcall = KEYS, ARGV, redis.call, redis.pcall
local floor, ceil, min, max, huge = math.floor, math.ceil, math.min, math.max, math.huge
local pack, unpackBytes, sub, match = struct.pack, struct.unpack, string.sub, string.match

local time = call('TIME')
local now = time[1] * 1000000 + time[2]

-- True if the header of a log and the length of its string fit each other.
local function isSound(capacity, first, held, total, gone, bytes)
  -- The version is the first byte of the capacity.
  return capacity < 2 ^ 24 and first < capacity and held <= capacity and gone <= total
    and bytes == HEADER_BYTES + capacity * SLOT_BYTES
end

-- Returns the milliseconds until the newest call of a log leaves: a window after it, or at the end of
-- the calendar period that begins at `start`, which is false if the window slides.
local function ttlOf(newest, window, start)
  local from = start and newest < start + window and start or newest
  return ceil((from + window - now) / 1000)
end
