-- The globals of scripts, and the commands as scripts call them. Returns `environment`, and `locate`, which handles an error.

local data, struct = ...
local commands, failed, request, OOM, READONLY = data.commands, data.failed, data.request, data.OOM, data.READONLY
local upper, find, gsub, gmatch, getinfo = string.upper, string.find, string.gsub, string.gmatch, debug.getinfo

-- Runs a command of a script.
local function execute(...)
  local name = ...
  local count = select('#', ...)
  if count == 0 then return failed('ERR Please specify at least one argument for this redis lib call') end
  for i = 1, count do
    local kind = type((select(i, ...)))
    if kind ~= 'string' and kind ~= 'number' then return failed('ERR Lua redis lib command arguments must be strings or integers') end
  end
  local command = commands[name] or commands[upper(name)]
  if not command then return failed('ERR Unknown Redis command called from script') end
  if count <= command.least or count > command.most + 1 then
    return failed('ERR Wrong number of args calling Redis command from script')
  end
  if command.writes then
    if request.isReadOnly then return failed(READONLY) end
    -- As Redis does, let a script finish that has begun to write.
    if request.isFull and command.grows and not request.hasWritten then return failed(OOM) end
    request.hasWritten = true
  end
  return command.run(select(2, ...))
end

local redis = { pcall = execute }
function redis.call(...)
  local reply = execute(...)
  if type(reply) == 'table' and reply.err then error(reply, 0) end
  return reply
end
function redis.error_reply(message)
  message = gsub(message, '^-', '')
  return failed(find(message, ' ', 1, true) and message or 'ERR ' .. message)
end
function redis.status_reply(message) return { ok = message } end

-- `long` has 32 bits here: format integers as floats.
local plainFormat = string.format
function string.format(template, ...)
  local arguments, index = { ... }, 0
  if find(template, '%%[-+ #0%d]*[di]') then
    template = gsub(template, '%%([-+ #0%d.]*)([%a%%])', function(flags, letter)
      if letter == '%' then return '%%' end
      index = index + 1
      local number = (letter == 'd' or letter == 'i') and not find(flags, '.', 1, true) and tonumber(arguments[index])
      if not number then return '%' .. flags .. letter end
      arguments[index] = number - math.fmod(number, 1) + 0
      return '%' .. flags .. '.0f'
    end)
  end
  local succeeded, result = pcall(plainFormat, template, unpack(arguments, 1, select('#', ...)))
  if not succeeded then error((gsub(result, "'%?'", "'format'")), 2) end
  return result
end

-- The globals of scripts. Those that Redis has in addition (cjson, cmsgpack, bit, load, collectgarbage, random numbers) are
-- errors, as unknown globals are.
local environment = { redis = redis, struct = struct, table = table, string = string, math = {} }
for name, value in pairs(math) do
  if not find(name, 'random', 1, true) then environment.math[name] = value end
end
for name in gmatch('_VERSION assert coroutine error getmetatable ipairs next pairs rawequal rawget rawset select setmetatable tonumber tostring type unpack xpcall', '%S+') do
  environment[name] = _G[name]
end
environment._G = environment
-- As in Redis, `pcall` returns the message of an error of a command.
local function unwrap(succeeded, ...)
  local thrown = ...
  if not succeeded and type(thrown) == 'table' and type(thrown.err) == 'string' then return false, thrown.err end
  return succeeded, ...
end
function environment.pcall(...) return unwrap(pcall(...)) end
setmetatable(environment, {
  __index = function(_, name) error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2) end,
  __newindex = function() error('Attempt to modify a readonly table', 2) end,
})

-- Adds the line of the script to an error.
local function locate(thrown)
  local failure = type(thrown) == 'table' and thrown or failed('ERR ' .. tostring(thrown))
  for level = 2, 50 do
    local info = getinfo(level, 'Sl')
    if not info then break end
    if info.source == '@user_script' then
      failure.line = info.currentline
      break
    end
  end
  return failure
end

return { environment = environment, locate = locate }
