-- Notes that a gateway is there; says how many are, and since when this server holds its data.
--
-- KEYS      a sorted set: each gateway, by when it was last seen; and a key without expiry, beside it
-- ARGV      the gateway's own id; after how many milliseconds one that was not seen is gone
-- returns   this server's clock in microseconds since the epoch; how many gateways there are; when the second key was first
--           written, on the same clock

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- These keys hold no calls: one that something else was written to is made anew.
local function wrong(reply) return type(reply) == 'table' and string.find(reply.err or '', 'WRONGTYPE') end
if wrong(redis.pcall('ZCARD', KEYS[1])) then redis.call('UNLINK', KEYS[1]) end
if wrong(redis.pcall('GET', KEYS[2])) then redis.call('UNLINK', KEYS[2]) end

redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2] * 1000)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('SET', KEYS[2], string.format('%.0f', now), 'NX')
return { now, redis.call('ZCARD', KEYS[1]), tonumber(redis.call('GET', KEYS[2])) or 0 }
