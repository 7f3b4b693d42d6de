-- Decides the most frequent question to charge.lua in two thirds of its time: one call under one
-- plain limit, without own calls. Leaves a log that is damaged or has no free slot, a limit that was
-- lowered, many slots that leave together, large totals, and a clock that went back to charge.lua, which
-- follows in the same script and decides each question alike. KEYS, ARGV and what it returns: there.

-- Maximum slots of a log that is read and written as a whole, and the offset of its last byte. A text,
-- as Lua converts numbers slowly.
local SMALL = 8
local SMALL_END = '141'

-- A request that waited at a stalled server has timed out at the gateway: do not charge it.
if now > tonumber(ARGV[1]) or now < tonumber(ARGV[2]) then return { now } end

-- The log of the only key: its whole string if it is small, or its header and first slots.
local only
local calls, window
if #KEYS == 1 then calls, window = match(ARGV[4], '^1 ([1-9]%d*) (%d+) 0$') end
if calls then
  local name = KEYS[1]
  calls, window = tonumber(calls), tonumber(window)
  local span = calls > EXACT and ceil(window / EXACT) or 1
  only = pcall('GETRANGE', name, '0', SMALL_END)

  if only == '' then
    -- The first call of a key: its log is one slot.
    call('SET', name, pack(HEADER, 1, 0, 1, 1, 0, now, now) .. pack(SLOT, now, 1), 'PX', ttlOf(now, window, false))
    return { now, 1, 1, 1, (floor(now / span) + 1) * span - 1 + window }
  end

  if type(only) == 'string' and #only > HEADER_BYTES then
    local capacity, first, held, total, gone, newest, oldest = unpackBytes(HEADER, only)
    local isSmall = capacity <= SMALL
    local isUsual = newest - now <= window and total < LARGE
      and isSound(capacity, first, held, total, gone, isSmall and #only or call('STRLEN', name))

    -- Drop the slots that have left, to be written if the call is charged.
    local horizon, steps = now - window, 0
    while isUsual and held > 0 and oldest <= horizon and steps <= SMALL do
      local at, upTo = HEADER_BYTES + first * SLOT_BYTES, nil
      local slot = isSmall and sub(only, at + 1, at + SLOT_BYTES) or call('GETRANGE', name, at, at + SLOT_BYTES - 1)
      oldest, upTo = unpackBytes(SLOT, slot)
      if oldest <= horizon then first, held, gone = (first + 1) % capacity, held - 1, upTo end
      steps = steps + 1
    end

    local used = total - gone
    local isShared = held > 0 and (newest >= now or floor(newest / span) == floor(now / span))
    if isUsual and steps <= SMALL then
      if used == calls then return { now, 0, 0, used, oldest + window } end
      if used < calls and (isShared or held < capacity) then
        -- Add the call to the newest slot, or to a new one.
        if not isShared then held = held + 1 end
        newest, total, used = max(newest, now), total + 1, used + 1
        if held == 1 then oldest = newest end
        local at = HEADER_BYTES + (first + held - 1) % capacity * SLOT_BYTES
        local header = pack(HEADER, capacity, first, held, total, gone, newest, oldest)
        local added = pack(SLOT, newest, total)
        local ttl = ttlOf(newest, window, false)
        if isSmall then
          local before, after = sub(only, HEADER_BYTES + 1, at), sub(only, at + SLOT_BYTES + 1)
          call('SET', name, header .. before .. added .. after, 'PX', ttl)
        else
          call('SETRANGE', name, at, added)
          call('SETRANGE', name, '0', header)
          call('PEXPIRE', name, ttl)
        end
        -- The only slot may still get calls until its span ends.
        local leaves = used < calls and held == 1 and (floor(oldest / span) + 1) * span - 1 or oldest
        return { now, 1, 1, used, leaves + window }
      end
    end
  end
end

