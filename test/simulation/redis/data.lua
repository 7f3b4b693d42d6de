-- The data of one server at a time, and what the commands share.
--
-- A reply is as a script gets it: a number, a string, false for nil, a list, { ok = status } or { err = error }.
-- A key's entry is { kind, value, expires }. The value of a string is never changed in place; that of a `hash` is a list of
-- fields, each followed by its value; of a `zset` one of members, each followed by its score, in order.

local floor, format, find, match = math.floor, string.format, string.find, string.match

local data, nowSeconds, nowMicros, nowMs = {}, '0', '0', 0
local commands = {}
-- How often expired keys are removed that nothing reads, in milliseconds of the server's clock.
local SWEEP_MS = 10000

-- Defines a command with its minimum and maximum number of arguments; `flags`: w for a write, m if it is denied when the memory is full.
local function define(name, least, most, flags, run)
  commands[name] = { run = run, least = least, most = most, writes = find(flags, 'w') ~= nil, grows = find(flags, 'm') ~= nil }
end

local WRONGTYPE = 'WRONGTYPE Operation against a key holding the wrong kind of value'
local NOT_INTEGER = 'ERR value is not an integer or out of range'
local function failed(message) return { err = message } end

-- Returns an argument as Redis gets it: scripts may pass numbers.
local function text(value)
  return type(value) == 'number' and format('%.17g', value) or value
end

local function integer(value)
  if type(value) == 'string' and not (match(value, '^%-?[1-9]%d*$') or value == '0') then return nil end
  local number = tonumber(value)
  return number % 1 == 0 and number >= -2 ^ 63 and number < 2 ^ 63 and number or nil
end

-- Returns the entry of a key that has not expired, and an error if it is of another kind.
local function lookup(key, kind)
  key = text(key)
  local entry = data[key]
  if not entry then return nil end
  if entry.expires and nowMs > entry.expires then
    data[key] = nil
    return nil
  end
  return entry, kind and entry.kind ~= kind and failed(WRONGTYPE) or nil
end

local function put(key, kind, value, expires)
  data[text(key)] = { kind = kind, value = value, expires = expires }
end

-- Returns the list of a hash or sorted set, creating the key if `create`; and an error if it is of another kind.
local function list(key, kind, create)
  local entry, wrong = lookup(key, kind)
  if wrong then return nil, wrong end
  if not entry and create then
    put(key, kind, {})
    entry = data[text(key)]
  end
  return entry and entry.value or {}
end

local function indexOf(pairs, name)
  for i = 1, #pairs, 2 do if pairs[i] == name then return i end end
end

-- Removes those of the entries of a list that `accepts(name, value)`, and the key if it is then empty; returns how many.
local function remove(key, values, accepts)
  local kept, count = {}, 0
  for i = 1, #values, 2 do
    if accepts(values[i], values[i + 1]) then
      count = count + 1
    else
      kept[#kept + 1], kept[#kept + 2] = values[i], values[i + 1]
    end
  end
  if count > 0 then data[text(key)].value = kept end
  if count > 0 and #kept == 0 then data[text(key)] = nil end
  return count
end

local function setOf(...)
  local names = {}
  for i = 1, select('#', ...) do names[text((select(i, ...)))] = true end
  return names
end

local function clone(values)
  local result = {}
  for i = 1, #values do result[i] = values[i] end
  return result
end

-- Copies a server's data, without the keys that have expired.
local function copy(source)
  local target = {}
  for key, entry in pairs(source) do
    if not (entry.expires and nowMs > entry.expires) then
      local isString = entry.kind == 'string'
      target[key] = isString and entry or { kind = entry.kind, value = clone(entry.value), expires = entry.expires }
    end
  end
  return target
end

-- Removes the keys that have expired.
local function sweep()
  for key, entry in pairs(data) do
    if entry.expires and nowMs > entry.expires then data[key] = nil end
  end
end

-- Makes the commands use a server, at an instant of its clock, as strings.
local function use(server, seconds, micros)
  data, nowSeconds, nowMicros = server.data, seconds, micros
  nowMs = seconds * 1000 + floor(micros / 1000)
  if not server.sweptAt or math.abs(nowMs - server.sweptAt) >= SWEEP_MS then
    server.sweptAt = nowMs
    sweep()
  end
end

return {
  OOM = "OOM command not allowed when used memory > 'maxmemory'.",
  READONLY = "READONLY You can't write against a read only replica.",
  -- What the server is while a request runs, and whether its script has written.
  request = { isFull = false, isReadOnly = false, hasWritten = false },
  NOT_INTEGER = NOT_INTEGER, commands = commands, define = define, failed = failed, text = text,
  integer = integer, lookup = lookup, put = put, list = list, indexOf = indexOf, remove = remove, setOf = setOf, clone = clone, copy = copy,
  use = use, sweep = sweep,
  time = function() return { nowSeconds, nowMicros } end,
  nowMs = function() return nowMs end,
  all = function() return data end,
  drop = function(key) data[text(key)] = nil end,
}
