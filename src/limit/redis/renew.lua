-- Renews leases of calls at once, also those that this server has lost: charge.lua. Does the same
-- if it is called again.
--
-- KEYS      the keys of the leases
-- ARGV      the deadline, after which nothing is done; then for each lease the position of its key, its id, and its length in
--           microseconds from now on
-- returns   the time, and nothing else after the deadline; then 1

if now > tonumber(ARGV[1]) then return { now } end
for at = 2, #ARGV, 3 do
  local key, id, length = KEYS[tonumber(ARGV[at])], ARGV[at + 1], tonumber(ARGV[at + 2])
  local added = pcall('ZADD', key, now + length, id)
  if type(added) == 'number' then call('PEXPIRE', key, max(call('PTTL', key), ceil(length / 1000))) end
  -- A key of another type is damaged, which the next decision reports.
  if type(added) == 'table' and not match(added.err, '^WRONGTYPE') then return added end
end
return { now, 1 }
