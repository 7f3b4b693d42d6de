-- Registers a gateway at this server.
--
-- KEYS      a sorted set of the gateways by when each was last seen, and a key without expiry
-- ARGV      the id of the gateway, and its time to live in milliseconds
-- returns   this server's clock, the number of gateways, and since when this server has held its data; times are microseconds
--           since the epoch

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- Replace keys of another type: they hold no calls.
local function wrong(reply) return type(reply) == 'table' and string.find(reply.err, 'WRONGTYPE') end
if wrong(redis.pcall('ZCARD', KEYS[1])) then redis.call('UNLINK', KEYS[1]) end
if wrong(redis.pcall('GET', KEYS[2])) then redis.call('UNLINK', KEYS[2]) end

local life = ARGV[2] * 1000
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - life)
-- The clock was ahead by more than a lifetime, or another program wrote them. Living gateways return within seconds.
redis.call('ZREMRANGEBYSCORE', KEYS[1], now + life, '+inf')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('SET', KEYS[2], string.format('%.0f', now), 'NX')
return { now, redis.call('ZCARD', KEYS[1]), tonumber(redis.call('GET', KEYS[2])) or 0 }
