-- Decides a batch of requests, each against several limits: a request is charged to all of its
-- limits, or to none. The clock is read once for the whole batch. The log of a key: layout.lua. The
-- key of a limit of calls at once is a sorted set of leases, the calls in progress, by the times at
-- which they end by themselves; the id of a lease begins with the time at which its call began.
-- charge-one.lua precedes this, and has decided most calls of one plain limit.
--
-- KEYS, on a cluster all of one hash slot:
--   1. the key of every limit of every decision, in order; the key of a limit's access precedes it
--   2. the keys of every decision's limits of calls at once
--   3. the marks of merges
--
-- ARGV:
--   1. the deadline, after which nothing is decided
--   2. the time before which nothing is decided
--   3. the number of keys with logs
--   Then for every decision a rule, numbers separated by blanks: 1 to charge or 0 to read only, 2
--   more if it has limits of calls at once; then for every key of another limit its calls, its
--   window and the sum of its flags, and after these the numbers of the flags, in their order:
--     1   a shadow limit
--     2   a calendar period, which lasts the window: its first microsecond
--     4   own calls of the gateway, which count in addition to the log: their number; the calls of
--         the merge under way, which count, too, unless the log has them; its number; and the
--         position of its mark, which has its number once it is done, from the end
--     8   the access of the next limit
--     16  a call that counts as several: their number
--   Two arguments follow the rule of a decision with limits of calls at once: for each of them the
--   calls, the length of a lease, own calls of the gateway and 1 for a shadow limit; and the id of
--   its leases.
--
-- Returns integers: the time, and nothing else outside these times; then for every decision 1 if it
-- is admitted, 0 if not, and for every key:
--   room     1 if it has room for the call, 0 if not, and 2 more if the log has the calls of the
--            merge; -1 if it is damaged: nothing is decided
--   used     calls in the window, with this call if it was charged, and those in addition to the log
--   growsAt  when the remaining calls next grow; without room, when the call can pass
-- After these for every limit of calls at once the same room and used, and when the oldest call in
-- progress began if the decision is only read, or 0.
--
-- A call during an access is free: it needs no room, and is charged neither to the limit nor to the
-- access, if the limit has calls and is not 0.

local CHARGE, AT_ONCE = 1, 2
local NONE, FREE, PAYS = 0, 1, 2
-- The longest lease of another route, in microseconds. A lease that ends later than that after this
-- route's was added by a clock that was ahead, or by another program.
local DAY = 86400 * 1000000

-- Returns time and cumulative count of a slot, 0 being the oldest. There are few functions, because
-- each script call creates them again.
local function slot(log, index)
  local at = HEADER_BYTES + (log.first + index) % log.capacity * SLOT_BYTES
  if log.raw then return unpackBytes(SLOT, log.raw, at + 1) end
  return unpackBytes(SLOT, call('GETRANGE', log.key, at, at + SLOT_BYTES - 1))
end

-- Read and check every key before the first write: Redis does not roll back a script that fails.
local logs = {}
local leaseKey = tonumber(ARGV[3])
for i = 1, leaseKey do
  local name = KEYS[i]
  if not logs[name] then
    local raw = only or pcall('GETRANGE', name, '0', SMALL_END)
    if type(raw) == 'table' and not match(raw.err, '^WRONGTYPE') then return raw end
    local capacity, first, held, total, gone, newest, oldest = 0, 0, 0, 0, 0, 0, 0
    local damaged = type(raw) ~= 'string' or raw ~= '' and #raw < HEADER_BYTES
    if not damaged and raw ~= '' then
      capacity, first, held, total, gone, newest, oldest = unpackBytes(HEADER, raw)
      -- The version is the first byte of the capacity.
      damaged = capacity >= 2 ^ 24 or first >= capacity or held > capacity or gone > total
        or HEADER_BYTES + capacity * SLOT_BYTES ~= (capacity <= SMALL and #raw or call('STRLEN', name))
      if damaged then held, total, gone = 0, 0, 0 end
    end
    -- `raw`: the whole string of a small log, which each change updates; the slots of another are read and written one by one.
    logs[name] = {
      key = name, damaged = damaged, dirty = false, room = NONE, raw = capacity <= SMALL and raw,
      capacity = capacity, first = first, held = held, total = total, gone = gone, newest = newest,
      oldest = oldest, calls = 0, window = 0, start = false, own = 0, isMerged = false, cost = 1,
    }
  end
end

-- Calls in progress, by the key of their leases.
local inProgress = {}

-- Parsed rules, by their text: many decisions have the same one. The first is that of a decision with
-- limits of calls at once only.
local rules = { ['3'] = { CHARGE + AT_ONCE } }
local function parse(text)
  local rule, rest = rules[text], text
  if rule then return rule end
  -- The first four numbers in half the time.
  local one, two, three, four, further = match(text, '^ ?(%S+) (%S+) (%S+) (%S+)(.*)$')
  if one then rule, rest = { tonumber(one), tonumber(two), tonumber(three), tonumber(four) }, further else rule = {} end
  if rest ~= '' then
    for number in rest:gmatch('%S+') do rule[#rule + 1] = tonumber(number) end
  end
  rules[text] = rule
  return rule
end

-- As long as the shortest answer: a table that grows costs time.
local answer, size, key, decision = { now, 0, 0, 0, 0 }, 1, 0, 4
while decision <= #ARGV do
  local rule, atOnce, lease = parse(ARGV[decision]), nil, nil
  decision = decision + 1
  local charging = rule[1] % 2 == CHARGE
  if rule[1] >= AT_ONCE then
    atOnce, lease, decision = parse(ARGV[decision]), ARGV[decision + 1], decision + 2
  end
  -- Find the calls that have left the window of each key, and whether it has room.
  local admitted, at, last, access = true, 2, key, nil
  while at <= #rule do
    local calls, window, flags = rule[at], rule[at + 1], rule[at + 2]
    local start, own, cost = false, 0, 1
    at = at + 3
    last = last + 1
    local log = logs[KEYS[last]]
    if flags % 4 >= 2 then start, at = rule[at], at + 1 end
    if flags % 8 >= 4 then
      log.isMerged = tonumber(call('GET', KEYS[#KEYS + 1 - rule[at + 3]]) or 0) >= rule[at + 2]
      own = rule[at] + (log.isMerged and 0 or rule[at + 1])
      at = at + 4
    end
    if flags >= 16 then cost, at = rule[at], at + 1 end
    log.calls, log.window, log.start, log.own, log.cost = calls, window, start, own, cost
    if log.held > 0 and log.newest - now > window then
      -- The clock went back by more than a window: the key must not stay full for longer than one window.
      log.raw = ('\0'):rep(HEADER_BYTES) .. pack(SLOT, now, log.total)
      log.capacity, log.first, log.held, log.newest, log.oldest = 1, 0, 1, now, now
      log.dirty = log.dirty or charging
    end
    local horizon = start and start - 1 or now - window
    if log.held > 0 and log.oldest <= horizon then
      -- Drop the slots that have left, to be written if the call is charged. A galloping search, as
      -- they are usually few.
      local when, gone = slot(log, 0)
      local left, step, beyond, upTo = 1, 1, log.held + 1, nil
      while beyond - left > 1 do
        local probe = beyond > log.held and min(left + step, log.held) or floor((left + beyond) / 2)
        when, upTo = slot(log, probe - 1)
        if when > horizon then beyond, log.oldest = probe, when else left, gone, step = probe, upTo, step * 2 end
      end
      log.first, log.held, log.gone = (log.first + left) % log.capacity, log.held - left, gone
    end

    if flags % 16 >= 8 then
      access = log
    else
      local used = log.total - log.gone + own
      local isFree = access and used > 0 and calls > 0 and access.total + access.own > access.gone
      log.room = isFree and FREE or used + cost <= calls and PAYS or NONE
      if log.damaged or access and access.damaged or log.room == NONE and flags % 2 == 0 then admitted = false end
      if access then access.room, access = log.room, nil end
    end
  end

  -- Count the calls in progress of each key; nil if it is damaged.
  for i = 1, atOnce and #atOnce or 0, 4 do
    local name, isShadow = KEYS[leaseKey + (i + 3) / 4], atOnce[i + 3] == 1
    local calls, window, own = atOnce[i], atOnce[i + 1], atOnce[i + 2]
    -- A reading counts none that have ended.
    local full = charging and calls - own or 0
    local count = inProgress[name] or pcall('ZCARD', name)
    if type(count) ~= 'number' then
      -- Fails again if the key is not damaged: the command is refused.
      count = not match(count.err, '^WRONGTYPE') and call('ZCARD', name) or nil
    elseif count > 0 and count >= full then
      -- Remove the leases that have ended by themselves, and those that end too late.
      count = count - call('ZREMRANGEBYSCORE', name, '-inf', now)
      if count > 0 and count >= full then
        count = count - call('ZREMRANGEBYSCORE', name, now + window + DAY, '+inf')
      end
    end
    inProgress[name] = count
    if not count or count + own >= calls and not isShadow then admitted = false end
  end

  size = size + 1
  answer[size] = admitted and 1 or 0
  for index = key + 1, last do
    local log = logs[KEYS[index]]
    local calls, window, start = log.calls, log.window, log.start
    local span = start and huge or calls > EXACT and ceil(window / EXACT) or 1
    if charging and admitted and log.room == PAYS then
      -- Add the call to the newest slot, or to a new one.
      local held, when = log.held, now
      log.total, log.dirty = log.total + log.cost, true
      if held > 0 and (log.newest >= now or floor(log.newest / span) == floor(now / span)) then
        when = max(log.newest, now)
      else
        if held == log.capacity then
          -- Copy the slots, oldest first, to twice the capacity, but at most to the capacity that the limit needs.
          local capacity = max(held + 1, min(calls, EXACT + 2, max(4, 2 * held)))
          local all = log.raw or call('GETRANGE', log.key, 0, -1)
          local from = HEADER_BYTES + log.first * SLOT_BYTES
          local slots = sub(all, from + 1) .. sub(all, HEADER_BYTES + 1, from)
          log.raw = ('\0'):rep(HEADER_BYTES) .. slots .. ('\0'):rep((capacity - held) * SLOT_BYTES)
          log.capacity, log.first = capacity, 0
        end
        held = held + 1
      end
      log.held, log.newest, log.oldest = held, when, held == 1 and when or log.oldest
      local begin = HEADER_BYTES + (log.first + held - 1) % log.capacity * SLOT_BYTES
      if log.raw then
        log.raw = sub(log.raw, 1, begin) .. pack(SLOT, when, log.total) .. sub(log.raw, begin + SLOT_BYTES + 1)
      else
        call('SETRANGE', log.key, begin, pack(SLOT, when, log.total))
      end
    end

    local used, growsAt = log.total - log.gone, now
    -- Without room, as many more must leave as the call counts.
    local left = calls - log.own - (log.room == NONE and log.cost - 1 or 0)
    if start or left <= 0 then
      growsAt = (start or now) + window
    elseif used > 0 and used < left and log.held == 1 then
      -- The only slot may still get calls until its span ends.
      growsAt = (floor(log.oldest / span) + 1) * span - 1 + window
    elseif used > 0 then
      -- The first slot to leave; if the limit was lowered, the first that leaves fewer than `left` calls.
      local low, high = 0, used > left and log.held - 1 or 0
      while low < high do
        local middle = floor((low + high) / 2)
        local _, upTo = slot(log, middle)
        if upTo > log.total - left then high = middle else low = middle + 1 end
      end
      growsAt = (low == 0 and log.oldest or slot(log, low)) + window
    end
    -- 1 for FREE and PAYS.
    answer[size + 1] = log.damaged and -1 or min(log.room, 1) + (log.isMerged and 2 or 0)
    answer[size + 2], answer[size + 3] = used + log.own, growsAt
    size = size + 3
  end
  key = last
  for i = 1, atOnce and #atOnce or 0, 4 do
    leaseKey = leaseKey + 1
    local name = KEYS[leaseKey]
    local calls, window, own, count = atOnce[i], atOnce[i + 1], atOnce[i + 2], inProgress[name]
    local hasRoom, oldest = count and count + own < calls, huge
    if hasRoom and charging and admitted then
      -- Add the lease. A key outlives it by as much again, so that most leases find one that lives
      -- long enough. Removes nothing before: Redis with full memory refuses to add only until a
      -- script has written.
      local ttl = ceil(window / 1000)
      local isShort = count > 0 and call('PTTL', name) < ttl
      call('ZADD', name, now + window, lease)
      if isShort then count = count - call('ZREMRANGEBYSCORE', name, '-inf', now) end
      if isShort or count == 0 then call('PEXPIRE', name, 2 * ttl) end
      count = count + 1
      inProgress[name] = count
    elseif not charging and count then
      -- Of more than 100 calls, compare those whose leases end first: each takes 0.5 us, in which
      -- Redis answers nobody.
      for _, id in ipairs(call('ZRANGE', name, 0, 99)) do oldest = min(oldest, tonumber(match(id, '^%d+')) or huge) end
    end
    answer[size + 1] = count and (hasRoom and 1 or 0) or -1
    answer[size + 2], answer[size + 3] = (count or 0) + own, oldest < huge and oldest or 0
    size = size + 3
  end
end

for name, log in pairs(logs) do
  if log.dirty then
    local window, start, newest = log.window, log.start, log.newest
    local ttl = ceil(((start and newest < start + window and start or newest) + window - now) / 1000)
    local header = pack(HEADER, log.capacity, log.first, log.held, log.total, log.gone, newest, log.oldest)
    if log.raw then
      call('SET', name, header .. sub(log.raw, HEADER_BYTES + 1), 'PX', ttl)
    else
      call('SETRANGE', name, '0', header)
      call('PEXPIRE', name, ttl)
    end
  end
end

return answer
