-- Decides a batch of requests, each against several limits: a request is charged to all of its
-- limits, or to none. The clock is read once for the whole batch. The log of a key: layout.lua. The
-- key of a limit of calls at once is a sorted set of leases, the calls in progress, by the times at
-- which they end by themselves; the id of a lease begins with the time at which its call began.
-- charge-one.lua precedes this, and has decided most calls of one plain limit.
--
-- KEYS, on a cluster all of one hash slot:
--   1. the log of each limit of each decision, in order; that of a limit's access precedes it
--   2. the leases of each decision's limits of calls at once
--   3. the marks of merges
--
-- ARGV (drawn in question.ts):
--   1. the deadline, after which nothing is decided
--   2. the time before which nothing is decided
--   3. the number of keys with logs
--   Then for each decision a rule, numbers separated by blanks: the first the sum of what is to be
--   done; then for each log its calls, its window, the sum of its flags, and the numbers of each flag.
--   Two arguments follow the rule of a decision with limits of calls at once: its leases, four numbers
--   for each limit, and their id.
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

-- What is to be done: charge, or only read; and limits of calls at once follow.
local CHARGE, AT_ONCE = 1, 2
-- The flags of a log, tested one by one, and their numbers:
--   SHADOW    it refuses no call
--   CALENDAR  a calendar period, which lasts the window: its first microsecond
--   OWN       calls of the gateway that count in addition to the log: the calls that it keeps; those of
--             the merge under way, unless the log has them; the number of the merge; the place of its
--             mark in KEYS, which has the number once it is done
--   ACCESS    the log is that of the access of the next limit
--   COST      a call that counts as several: their number
local SHADOW, CALENDAR, OWN, ACCESS, COST = 1, 2, 4, 8, 16
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

-- Subtracts what is gone from the numbers of a log, before they are too large.
local function rebase(log)
  local slots = {}
  for index = 0, log.held - 1 do
    local when, upTo = slot(log, index)
    slots[index + 1] = pack(SLOT, when, upTo - log.gone)
  end
  local unused = ('\0'):rep((log.capacity - log.held) * SLOT_BYTES)
  log.raw = ('\0'):rep(HEADER_BYTES) .. table.concat(slots) .. unused
  log.first, log.total, log.gone = 0, log.total - log.gone, 0
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
      damaged = not isSound(capacity, first, held, total, gone, capacity <= SMALL and #raw or call('STRLEN', name))
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

-- Parsed rules and leases, by their text: many decisions have the same ones. The first is the rule of
-- a decision with limits of calls at once only.
local parsed = { ['3'] = { CHARGE + AT_ONCE } }
local function numbersOf(text)
  local numbers, rest = parsed[text], text
  if numbers then return numbers end
  -- The first four numbers in half the time.
  local one, two, three, four, further = match(text, '^(%S+) (%S+) (%S+) (%S+)(.*)$')
  if one then numbers, rest = { tonumber(one), tonumber(two), tonumber(three), tonumber(four) }, further else numbers = {} end
  if rest ~= '' then
    for number in rest:gmatch('%S+') do numbers[#numbers + 1] = tonumber(number) end
  end
  parsed[text] = numbers
  return numbers
end

-- As long as the shortest answer: a table that grows costs time.
local answer, size, key, argument = { now, 0, 0, 0, 0 }, 1, 0, 4
while argument <= #ARGV do
  local rule, leases, lease = numbersOf(ARGV[argument]), nil, nil
  argument = argument + 1
  local charges = rule[1] % AT_ONCE == CHARGE
  if rule[1] >= AT_ONCE then
    leases, lease, argument = numbersOf(ARGV[argument]), ARGV[argument + 1], argument + 2
  end
  -- Find the calls that have left the window of each key, and whether it has room.
  local admitted, at, last, access = true, 2, key, nil
  while at <= #rule do
    local calls, window, flags = rule[at], rule[at + 1], rule[at + 2]
    local start, own, cost = false, 0, 1
    at, last = at + 3, last + 1
    local log = logs[KEYS[last]]
    if flags % OWN >= CALENDAR then start, at = rule[at], at + 1 end
    if flags % ACCESS >= OWN then
      local kept, sent, number, mark = rule[at], rule[at + 1], rule[at + 2], KEYS[rule[at + 3]]
      log.isMerged = tonumber(call('GET', mark) or 0) >= number
      own, at = kept + (log.isMerged and 0 or sent), at + 4
    end
    if flags >= COST then cost, at = rule[at], at + 1 end
    log.calls, log.window, log.start, log.own, log.cost = calls, window, start, own, cost
    if log.held > 0 and log.newest - now > window then
      -- The clock went back by more than a window: the key must not stay full for longer than one window.
      log.raw = ('\0'):rep(HEADER_BYTES) .. pack(SLOT, now, log.total)
      log.capacity, log.first, log.held, log.newest, log.oldest = 1, 0, 1, now, now
      log.dirty = log.dirty or charges
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

    if flags % COST >= ACCESS then
      access = log
    else
      local used = log.total - log.gone + own
      local isFree = access and used > 0 and calls > 0 and access.total + access.own > access.gone
      log.room = isFree and FREE or used + cost <= calls and PAYS or NONE
      if log.damaged or access and access.damaged or log.room == NONE and flags % CALENDAR < SHADOW then admitted = false end
      if access then access.room, access = log.room, nil end
    end
  end

  -- Count the calls in progress of each key; nil if it is damaged.
  for at = 1, leases and #leases or 0, 4 do
    local calls, window, own, isShadow = leases[at], leases[at + 1], leases[at + 2], leases[at + 3] == 1
    local name = KEYS[leaseKey + (at + 3) / 4]
    -- A reading counts none that have ended.
    local full = charges and calls - own or 0
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
    if charges and admitted and log.room == PAYS then
      -- Add the call to the newest slot, or to a new one.
      if log.total >= LARGE and log.gone > 0 then rebase(log) end
      local held, when = log.held, now
      log.total, log.dirty = min(log.total + log.cost, MOST), true
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
  for at = 1, leases and #leases or 0, 4 do
    leaseKey = leaseKey + 1
    local name = KEYS[leaseKey]
    local calls, window, own, count = leases[at], leases[at + 1], leases[at + 2], inProgress[name]
    local hasRoom, oldest = count and count + own < calls, huge
    if hasRoom and charges and admitted then
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
    elseif not charges and count then
      -- Of more than 100 calls, compare those whose leases end first: each takes 0.5 us, in which
      -- Redis answers no client.
      for _, id in ipairs(call('ZRANGE', name, 0, 99)) do oldest = min(oldest, tonumber(match(id, '^%d+')) or huge) end
    end
    answer[size + 1] = count and (hasRoom and 1 or 0) or -1
    answer[size + 2], answer[size + 3] = (count or 0) + own, oldest < huge and oldest or 0
    size = size + 3
  end
end

for name, log in pairs(logs) do
  if log.dirty then
    -- The decisions of a batch about one key count it in the same window.
    local ttl = ttlOf(log.newest, log.window, log.start)
    local header = pack(HEADER, log.capacity, log.first, log.held, log.total, log.gone, log.newest, log.oldest)
    if log.raw then
      call('SET', name, header .. sub(log.raw, HEADER_BYTES + 1), 'PX', ttl)
    else
      call('SETRANGE', name, '0', header)
      call('PEXPIRE', name, ttl)
    end
  end
end

return answer
