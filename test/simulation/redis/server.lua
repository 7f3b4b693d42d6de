-- Answers the requests of JavaScript. Returns the function that does.
--
-- A request is lines. The first has words: server, its clock in seconds and microseconds, whether it is full, whether it is
-- read-only (1 or 0 each), command; then a line per argument. A reply is lines, too, each with its type: `:` integer, `$`
-- string, `+` status, `-` error, `_` nil, `#` a list of integers, `*` the size of any other list, whose items follow.
-- Backslashes, line breaks and zeros are escaped.

local data, sandbox = ...
local commands, failed, integer, request = data.commands, data.failed, data.integer, data.request
local environment, locate = sandbox.environment, sandbox.locate
local format, concat, match, upper, getinfo = string.format, table.concat, string.match, string.upper, debug.getinfo
local find, gsub, gmatch, sub = string.find, string.gsub, string.gmatch, string.sub

local ARITY = "ERR wrong number of arguments for '%s' command"
local NOSCRIPT = 'NOSCRIPT No matching script. Please use EVAL.'

local servers, snapshots, lastSnapshot, server = {}, {}, 0, nil

local compiled = {}
-- Compiles a script, unless it is known to the server; returns an error if that fails.
local function learn(sha, source)
  if not compiled[sha] then
    local run, message = loadstring(source, '@user_script')
    if not run then return failed('ERR Error compiling script (new function): ' .. message) end
    compiled[sha] = setfenv(run, environment)
  end
  server.scripts[sha] = true
end

-- Returns the last line of a script: where an error is that Lua cannot locate, because of `return redis.call(...)`.
local function lastLine(sha)
  local last = 0
  for line in pairs(getinfo(compiled[sha], 'L').activelines) do last = math.max(last, line) end
  return last
end

local function evaluate(sha, source, count, arguments, first)
  count = integer(count)
  if not count then return failed(data.NOT_INTEGER) end
  if count > #arguments - first + 1 then return failed("ERR Number of keys can't be greater than number of args") end
  if count < 0 then return failed("ERR Number of keys can't be negative") end
  local wrong = source and learn(sha, source)
  if wrong then return wrong end
  if not server.scripts[sha] then return failed(NOSCRIPT) end
  local keys, values = {}, {}
  for i = first, #arguments do
    if i < first + count then keys[#keys + 1] = arguments[i] else values[#values + 1] = arguments[i] end
  end
  rawset(environment, 'KEYS', keys)
  rawset(environment, 'ARGV', values)
  request.hasWritten = false
  local succeeded, reply = xpcall(compiled[sha], locate)
  if succeeded then return reply end
  return failed(format('%s script: %s, on @user_script:%d.', reply.err, sha, reply.line or lastLine(sha)))
end

-- Commands on scripts, and on the server itself. JavaScript adds the hash to a script's text.
local special = {
  EVAL = function(given)
    if not given[3] then return failed(format(ARITY, 'eval')) end
    return evaluate(given[1], given[2], given[3], given, 4)
  end,
  EVALSHA = function(given)
    if not given[2] then return failed(format(ARITY, 'evalsha')) end
    return evaluate(given[1]:lower(), nil, given[2], given, 3)
  end,
  LOAD = function(given) return learn(given[1], given[2]) or given[1] end,
  SCRIPT = function(given)
    if given[1]:lower() == 'flush' then server.scripts = {} end
    return { ok = 'OK' }
  end,
  SNAPSHOT = function()
    lastSnapshot = lastSnapshot + 1
    snapshots[lastSnapshot] = data.copy(server.data)
    return lastSnapshot
  end,
  SWEEP = function()
    data.sweep()
    return { ok = 'OK' }
  end,
  RESTART = function(given)
    server.data = given[1] == '0' and {} or data.copy(snapshots[tonumber(given[1])])
    if given[2] ~= '1' then server.scripts = {} end
    return { ok = 'OK' }
  end,
}

local function run(name, given)
  local known = upper(name)
  if special[known] then return special[known](given) end
  local command = commands[known]
  if not command then
    local shown = {}
    for i = 1, #given do shown[i] = "'" .. given[i] .. "' " end
    return failed(format("ERR unknown command '%s', with args beginning with: %s", name, concat(shown)))
  end
  if #given < command.least or #given > command.most then
    return failed(format(ARITY, name:lower()))
  end
  if request.isFull and command.grows then return failed(data.OOM) end
  if request.isReadOnly and command.writes then return failed(data.READONLY) end
  return command.run(unpack(given))
end

local function escape(bytes) return (gsub(bytes, '[\\\n%z]', { ['\\'] = '\\\\', ['\n'] = '\\n', ['\0'] = '\\0' })) end
local function unescape(bytes) return (gsub(bytes, '\\(.)', { ['\\'] = '\\', n = '\n', ['0'] = '\0' })) end

-- Truncates a number to an integer, as Redis does with replies. Lua writes large numbers with an exponent.
local function whole(number)
  if number % 1 ~= 0 then number = number - math.fmod(number, 1) + 0 end
  return number < 1e14 and number > -1e14 and number + 0 or format('%.0f', number)
end

local function append(lines, reply)
  local kind = type(reply)
  local line
  if kind == 'number' then
    line = ':' .. whole(reply)
  elseif kind == 'string' then
    line = '$' .. escape(reply)
  elseif kind ~= 'table' then
    line = reply == true and ':1' or '_'
  elseif reply.err then
    line = '-' .. escape(reply.err)
  elseif reply.ok then
    line = '+' .. escape(reply.ok)
  else
    local numbers, size = {}, 0
    for i = 1, #reply do
      if reply[i] == nil then break end
      size = i
      if numbers then
        if type(reply[i]) == 'number' then numbers[i] = whole(reply[i]) else numbers = nil end
      end
    end
    line = numbers and '#' .. concat(numbers, ',') or '*' .. size
    lines[#lines + 1] = line
    for i = 1, numbers and 0 or size do append(lines, reply[i]) end
    return
  end
  lines[#lines + 1] = line
end

return {
  create = function(id) servers[id] = { data = {}, scripts = {} } end,
  close = function(id) servers[id] = nil end,
  release = function(id) snapshots[tonumber(id)] = nil end,
  run = function(message)
    local id, seconds, micros, full, readOnly, name, rest = match(message, '^(%d+) (%d+) (%d+) (%d) (%d) ([^\n]*)\n()')
    local given, count, isEscaped = {}, 0, find(message, '\\', 1, true)
    for field in gmatch(sub(message, rest), '([^\n]*)\n') do
      count = count + 1
      given[count] = isEscaped and unescape(field) or field
    end
    server = servers[id]
    data.use(server, seconds, micros)
    request.isFull, request.isReadOnly = full == '1', readOnly == '1'
    local lines = {}
    append(lines, run(name, given))
    return concat(lines, '\n')
  end,
}
