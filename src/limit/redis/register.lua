-- Registers a gateway at this server.
--
-- KEYS      a sorted set of the gateways by when each was last seen; since when this server has its data, and when any gateway
--           was last seen, both without expiry; a key that exists while some gateway shows the summaries of all
-- ARGV      the id of the gateway, and its time to live in milliseconds
-- returns   this server's clock, the number of gateways, and since when this server has held its data; and by these data, when
--           this gateway and when any gateway was last seen before, 0 if never; times are microseconds since the epoch; and 1 if
--           the summaries are shown

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- Replace keys of another type: they hold no calls.
local function wrong(reply) return type(reply) == 'table' and string.find(reply.err, 'WRONGTYPE') end
if wrong(redis.pcall('ZCARD', KEYS[1])) then redis.call('UNLINK', KEYS[1]) end
for index = 2, 3 do if wrong(redis.pcall('GET', KEYS[index])) then redis.call('UNLINK', KEYS[index]) end end

local life = ARGV[2] * 1000
-- Adds nothing: this reads the score without a further command.
local own = redis.call('ZADD', KEYS[1], 'XX', 'INCR', 0, ARGV[1])
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - life)
-- The clock was ahead by more than a lifetime, or another program wrote them. Living gateways return within seconds.
redis.call('ZREMRANGEBYSCORE', KEYS[1], now + life, '+inf')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('SET', KEYS[2], string.format('%.0f', now), 'NX')
-- A small step of the clock back must not look like older data.
local last = tonumber(redis.call('GET', KEYS[3])) or 0
if now > last or last > now + life then redis.call('SET', KEYS[3], string.format('%.0f', now)) end
local since = tonumber(redis.call('GET', KEYS[2])) or 0
return { now, redis.call('ZCARD', KEYS[1]), since, tonumber(own or 0), last, redis.call('EXISTS', KEYS[4]) }
