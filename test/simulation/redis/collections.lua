-- The commands on hashes, on sorted sets, and on all keys.

local data = ...
local define, failed, text, lookup, list = data.define, data.failed, data.text, data.lookup, data.list
local indexOf, remove, setOf, clone, all = data.indexOf, data.remove, data.setOf, data.clone, data.all
local integer, NOT_INTEGER = data.integer, data.NOT_INTEGER

define('HGET', 2, 2, '', function(key, field)
  local values, wrong = list(key, 'hash')
  if wrong then return wrong end
  local at = indexOf(values, text(field))
  return at and values[at + 1] or false
end)

define('HGETALL', 1, 1, '', function(key)
  local values, wrong = list(key, 'hash')
  return wrong or clone(values)
end)

define('HSET', 3, math.huge, 'wm', function(key, ...)
  if select('#', ...) % 2 == 1 then return failed("ERR wrong number of arguments for 'hset' command") end
  local values, wrong = list(key, 'hash', true)
  if wrong then return wrong end
  local given, added = { ... }, 0
  for i = 1, #given, 2 do
    local at = indexOf(values, text(given[i]))
    if not at then
      at, added = #values + 1, added + 1
      values[at] = text(given[i])
    end
    values[at + 1] = text(given[i + 1])
  end
  return added
end)

define('HDEL', 2, math.huge, 'w', function(key, ...)
  local values, wrong = list(key, 'hash')
  local names = setOf(...)
  return wrong or remove(key, values, function(field) return names[field] end)
end)

-- Returns a score as a number, and whether the bound excludes it.
local function score(value)
  local digits, exclusive = text(value):gsub('^%(', '')
  return tonumber(digits), exclusive == 1
end

define('ZADD', 3, math.huge, 'wm', function(key, ...)
  local given, added = { ... }, 0
  if given[1] == 'XX' and given[2] == 'INCR' and text(given[3]) == '0' then
    -- As register.lua reads a score; no other form of XX or INCR is known.
    local values, wrong = list(key, 'zset')
    local at = not wrong and indexOf(values, text(given[4]))
    return wrong or at and text(values[at + 1]) or false
  end
  if #given % 2 == 1 then return failed('ERR syntax error') end
  for i = 1, #given, 2 do
    local number, exclusive = score(given[i])
    if not number or exclusive then return failed('ERR value is not a valid float') end
  end
  local values, wrong = list(key, 'zset', true)
  if wrong then return wrong end
  for i = 1, #given, 2 do
    local number, member = score(given[i]), text(given[i + 1])
    local at = indexOf(values, member)
    if at then
      table.remove(values, at)
      table.remove(values, at)
    else
      added = added + 1
    end
    at = 1
    while at < #values and (values[at + 1] < number or values[at + 1] == number and values[at] < member) do at = at + 2 end
    table.insert(values, at, number)
    table.insert(values, at, member)
  end
  return added
end)

define('ZCARD', 1, 1, '', function(key)
  local values, wrong = list(key, 'zset')
  return wrong or #values / 2
end)

define('ZSCORE', 2, 2, '', function(key, member)
  local values, wrong = list(key, 'zset')
  if wrong then return wrong end
  local at = indexOf(values, text(member))
  return at and text(values[at + 1]) or false
end)

define('ZREM', 2, math.huge, 'w', function(key, ...)
  local values, wrong = list(key, 'zset')
  local names = setOf(...)
  return wrong or remove(key, values, function(member) return names[member] end)
end)

define('ZREMRANGEBYSCORE', 3, 3, 'w', function(key, low, high)
  local least, above = score(low)
  local most, below = score(high)
  if not least or not most then return failed('ERR min or max is not a float') end
  local values, wrong = list(key, 'zset')
  return wrong or remove(key, values, function(_, number)
    return (number > least or number == least and not above) and (number < most or number == most and not below)
  end)
end)

define('ZRANGE', 3, 3, '', function(key, first, last)
  first, last = integer(first), integer(last)
  if not first or not last then return failed(NOT_INTEGER) end
  local values, wrong = list(key, 'zset')
  if wrong then return wrong end
  local size, found = #values / 2, {}
  if first < 0 then first = math.max(0, size + first) end
  if last < 0 then last = size + last end
  for i = first, math.min(last, size - 1) do found[#found + 1] = values[2 * i + 1] end
  return found
end)

-- Returns a pattern of Lua that matches what a glob of Redis does.
local function patternOf(glob)
  local inClass = false
  local body = glob:gsub('\\?.', function(part)
    local char = part:sub(-1)
    if #part == 1 and inClass then
      inClass = char ~= ']'
      if char:find('[%]^-]') then return char end
    elseif #part == 1 then
      inClass = char == '['
      if char == '[' then return char elseif char == '*' then return '.*' elseif char == '?' then return '.' end
    end
    return (char:gsub('%W', '%%%0'))
  end)
  return '^' .. body .. '$'
end

-- Returns the keys that match a glob, sorted.
local function keys(glob)
  local pattern, found = patternOf(glob), {}
  for key in pairs(all()) do if lookup(key) and key:find(pattern) then found[#found + 1] = key end end
  table.sort(found)
  return found
end

define('KEYS', 1, 1, '', function(glob) return keys(text(glob)) end)
-- One page with all keys; COUNT is ignored.
define('SCAN', 1, math.huge, '', function(_, ...)
  local glob = '*'
  for i = 1, select('#', ...), 2 do
    local option, value = select(i, ...)
    if option:upper() == 'MATCH' then glob = value end
  end
  return { '0', keys(glob) }
end)
define('DBSIZE', 0, 0, '', function() return #keys('*') end)

local function flush()
  for key in pairs(all()) do data.drop(key) end
  return { ok = 'OK' }
end
define('FLUSHALL', 0, 1, 'w', flush)
define('FLUSHDB', 0, 1, 'w', flush)
