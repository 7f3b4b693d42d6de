/** Commands whose replies the model and Redis must agree on, in this order. */
export const COMMANDS: readonly (readonly [string, ...string[]])[] = `
PING
GET none
SET a b
GET a
GET
get a
NOPE x y
EVALSHA
EVAL x
EXISTS a a none
STRLEN a
TYPE a
TYPE none
SET a c NX
SET a c XX
SET b c XX
SET b c NX
SET a b PX 0
SET a b PX x
SET a b PX
SET a b FOO
PEXPIRE a x
PEXPIRE a 1.5
PEXPIRE none 100
PTTL a
PTTL none
EXPIRE a 100
SET a 0123456789
PTTL a
GETRANGE a 2 4
GETRANGE a -3 -1
GETRANGE a 5 2
GETRANGE a -20 3
GETRANGE a -20 -30
GETRANGE a -30 -20
GETRANGE a 5 100
GETRANGE a 01 x
GETRANGE none 0 -1
SETRANGE a 2 xy
SETRANGE a 12 end
SETRANGE a -1 x
SETRANGE new 3 x
GET a
GET new
HSET hash a 1 b 2
HSET hash a 3 c 4
HSET hash a
HGET hash a
HGET hash none
HGET none a
HGET a a
HGETALL hash
HGETALL none
HDEL hash a none
HDEL hash b c
EXISTS hash
HSET a x y
ZADD zset 3 m
ZADD zset 1 n 2 o
ZADD zset 5 m
ZADD zset x m
ZADD zset 1
ZADD a 1 m
ZSCORE zset m
ZSCORE zset none
ZADD zset 1700000000000001 big
ZSCORE zset big
ZCARD zset
ZCARD a
ZCARD none
ZRANGE zset 0 -1
ZRANGE zset 1 1
ZRANGE zset -2 -1
ZRANGE zset 2 1
ZRANGE zset -9 9
ZRANGE zset x 1
ZRANGE none 0 -1
ZRANGE a 0 -1
PTTL zset
ZREMRANGEBYSCORE zset a b
ZREMRANGEBYSCORE zset (1 2
ZREMRANGEBYSCORE zset -inf (5
ZREMRANGEBYSCORE none -inf inf
ZREM zset m none
ZCARD zset
GET zset
STRLEN zset
GETRANGE zset 0 1
SETRANGE zset 0 x
SCAN 0 MATCH z?e*
SCAN 0 MATCH [x-z]se[^a] COUNT 10
SCAN 0 MATCH z-*
KEYS new
DBSIZE
DEL a none
UNLINK new b
EVAL return x
EVAL return 1
EVAL return 1
`
  .trim()
  .split('\n')
  .map((line) => line.split(' ') as [string, ...string[]])

/** Scripts whose replies the model and Redis must agree on; each gets two keys and three arguments. */
export const SCRIPTS: readonly string[] = [
  'return { #KEYS, #ARGV, KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3] }',
  "return { 1.9, -1.9, -0.5, true, false, { ok = 'fine' }, 'x', { 1, { 2, 'y' } }, nil, 3 }",
  'return {}',
  'return { 1700000000000000.9, 2 ^ 53, -2 ^ 53, 99999999999999, 100000000000000 }',
  'return 1e15 / 7',
  "return { err = 'BAD thing' }",
  "return redis.error_reply('MY error')",
  "return redis.error_reply('-MY error')",
  "return redis.status_reply('fine')",
  'return',
  "redis.call('SET', KEYS[1], 'x')\nreturn redis.call('ZCARD', KEYS[1])",
  "return redis.pcall('ZCARD', KEYS[1])",
  "return redis.pcall('ZCARD', KEYS[1]).err",
  "local ok, thrown = pcall(redis.call, 'ZCARD', KEYS[1]) return { tostring(ok), thrown }",
  'return x.y.z',
  'y = 1',
  "error('boom')",
  "\n\nerror({ err = 'MY own' })",
  "local function fail() error('deep') end\nlocal function outer()\n  fail()\nend\nouter()",
  'local a = nil\nreturn a.b',
  "return tonumber({}) .. 'x'",
  'syntax error here',
  "return redis.call('NOPE')",
  "return redis.call('GET')",
  'return redis.call()',
  "return redis.call('GET', {})",
  "local ok, thrown = pcall(error, { err = 'x' }) return { tostring(ok), thrown, redis.pcall('NOPE').err }",
  "redis.call('SETRANGE', KEYS[1], 1.5, 'x')",
  "redis.call('SETRANGE', KEYS[1], 1, 1.5) return redis.call('GET', KEYS[1])",
  "redis.call('SET', KEYS[1], 1700000000000001) return redis.call('GET', KEYS[1])",
  "redis.call('SET', 5, 0.1) return { redis.call('get', '5'), redis.call('EXISTS', 5, 6), redis.call('DEL', 5) }",
  "redis.call('ZADD', 'z', 1700000000000001, 'm', '-inf', 'n') return { redis.call('ZSCORE', 'z', 'm'), redis.call('UNLINK', 'z') }",
  "redis.call('HSET', 'h', 1, 2.5) return { redis.call('HGET', 'h', '1'), redis.call('HGET', 'h', 'x'), redis.call('UNLINK', 'h') }",
  "return redis.call('SET', KEYS[1], 'x', 'PX', 0)",
  "return redis.call('SET', KEYS[1], 'a\\0b\\nc\\\\d\\\\n')",
  "return { redis.call('GET', KEYS[1]), #redis.call('GET', KEYS[1]) }",
  "return string.format('%d %5d|%-20d|%020d %s %% %.0f %x', 1700000000000000, 3.7, 1e10, -1.7e15, 'd', 1.5e15, 255)",
  "local text = string.format('%d', 'x') return text",
  "return ('%d %s'):format(ARGV[4] == nil and 12345678901 or 0, 'y')",
  "return 1700000000000000 .. '|' .. 5.0 .. '|' .. 0.1 .. '|' .. tostring(2 ^ 53)",
  "return { string.byte(struct.pack('>I4I4I4I6I6I7I7', 2 ^ 24 + 7, 3, 9, 1e12, 5, 1700000000000001, 2 ^ 50), 1, -1) }",
  "return { struct.unpack('>I4I6I7', struct.pack('>I4I6I7', 4294967295, 2 ^ 48 - 1, 1700000000000001)) }",
  "return { string.byte(struct.pack('<i3>h<lbB', -2, -300, -5, -1, 255), 1, -1) }",
  "return { struct.unpack('<i3>h<lbB', struct.pack('<i3>h<lbB', -2, -300, -5, -1, 255)) }",
  "return { struct.unpack('>c3xI2', 'abc_\\1\\2', 1) }",
  "return { struct.unpack('>I2', 'abcdef', 3) }",
  // As many numbers as a log of 1002 slots has.
  "local n = {} for i = 1, 2004 do n[i] = i * 1000 end local s = struct.pack('>' .. string.rep('I7I6', 1002), unpack(n)) local r = { struct.unpack('>' .. string.rep('I7I6', 1002), s) } return { #s, #r, r[1], r[1001], r[2004], r[2005] }",
  "local s = '>' .. string.rep('hi3b', 40) local n = {} for i = 1, 120 do n[i] = i end return { struct.unpack(s, struct.pack(s, unpack(n))) and 1, #struct.pack(s, unpack(n)) }",
  "local n = struct.unpack('>I4', 'abc') return n",
  "local s = struct.pack('>I4', 'abc') return s",
  "return { string.byte(struct.pack('>I4', 7.9), 1, -1) }",
  "local t = {} for k in pairs({ ['~sluice:{a}:1'] = 1, b = 2, c = 3, ['key 1'] = 4 }) do t[#t + 1] = k end return t",
  'return { math.floor(-7 / 2), -7 % 3, 7.5 % 2, math.max(1, 2), math.ceil(0.2), 2 ^ 0.5 * 1000 }',
  "local n = 0 for a in string.gmatch('1 2  3', '%S+') do n = n + a end return n",
  "return select('#', unpack({ 1, nil, 3 }, 1, 3))",
]
