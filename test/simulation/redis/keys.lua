-- The commands on strings and on keys of any kind.

local data = ...
local define, failed, text, integer, lookup, put, drop = data.define, data.failed, data.text, data.integer, data.lookup, data.put, data.drop
local nowMs, NOT_INTEGER, sub, rep = data.nowMs, data.NOT_INTEGER, string.sub, string.rep

define('PING', 0, 0, '', function() return { ok = 'PONG' } end)
define('SELECT', 1, 1, '', function() return { ok = 'OK' } end)
define('TIME', 0, 0, '', data.time)

define('GET', 1, 1, '', function(key)
  local entry, wrong = lookup(key, 'string')
  return wrong or entry and entry.value or false
end)

define('SET', 2, math.huge, 'wm', function(key, value, ...)
  local condition, expires, keeps, i = nil, nil, false, 1
  while i <= select('#', ...) do
    local option, amount = select(i, ...)
    option = text(option):upper()
    if option == 'NX' or option == 'XX' then
      condition = option
    elseif option == 'KEEPTTL' then
      keeps = true
    elseif (option == 'PX' or option == 'EX') and amount then
      local ttl = integer(amount)
      if not ttl then return failed(NOT_INTEGER) end
      if ttl <= 0 then return failed("ERR invalid expire time in 'set' command") end
      expires, i = nowMs() + (option == 'EX' and 1000 * ttl or ttl), i + 1
    else
      return failed('ERR syntax error')
    end
    i = i + 1
  end
  local entry = (condition or keeps) and lookup(key) or nil
  if condition == 'NX' and entry or condition == 'XX' and not entry then return false end
  put(key, 'string', text(value), keeps and entry and entry.expires or expires)
  return { ok = 'OK' }
end)

define('STRLEN', 1, 1, '', function(key)
  local entry, wrong = lookup(key, 'string')
  return wrong or entry and #entry.value or 0
end)

define('GETRANGE', 3, 3, '', function(key, first, last)
  first, last = integer(first), integer(last)
  if not first or not last then return failed(NOT_INTEGER) end
  local entry, wrong = lookup(key, 'string')
  if wrong or not entry then return wrong or '' end
  local value = entry.value
  if first < 0 and last < 0 and first > last then return '' end
  if first < 0 then first = math.max(0, #value + first) end
  if last < 0 then last = math.max(0, #value + last) end
  return sub(value, first + 1, last + 1)
end)

define('SETRANGE', 3, 3, 'wm', function(key, offset, bytes)
  offset, bytes = integer(offset), text(bytes)
  if not offset then return failed(NOT_INTEGER) end
  if offset < 0 then return failed('ERR offset is out of range') end
  local entry, wrong = lookup(key, 'string')
  local value = entry and entry.value or ''
  if wrong or bytes == '' then return wrong or #value end
  if offset > #value then value = value .. rep('\0', offset - #value) end
  value = sub(value, 1, offset) .. bytes .. sub(value, offset + #bytes + 1)
  put(key, 'string', value, entry and entry.expires)
  return #value
end)

define('EXISTS', 1, math.huge, '', function(...)
  local count = 0
  for i = 1, select('#', ...) do if lookup((select(i, ...))) then count = count + 1 end end
  return count
end)

local function delete(...)
  local count = 0
  for i = 1, select('#', ...) do
    local key = select(i, ...)
    if lookup(key) then
      drop(key)
      count = count + 1
    end
  end
  return count
end
define('DEL', 1, math.huge, 'w', delete)
define('UNLINK', 1, math.huge, 'w', delete)

define('TYPE', 1, 1, '', function(key)
  local entry = lookup(key)
  return { ok = entry and entry.kind or 'none' }
end)

local function expire(unit)
  return function(key, amount)
    local ttl = integer(amount)
    if not ttl then return failed(NOT_INTEGER) end
    local entry = lookup(key)
    if not entry then return 0 end
    if ttl > 0 then put(key, entry.kind, entry.value, nowMs() + ttl * unit) else drop(key) end
    return 1
  end
end
define('EXPIRE', 2, 2, 'w', expire(1000))
define('PEXPIRE', 2, 2, 'w', expire(1))

define('PTTL', 1, 1, '', function(key)
  local entry = lookup(key)
  return not entry and -2 or not entry.expires and -1 or math.max(0, entry.expires - nowMs())
end)
