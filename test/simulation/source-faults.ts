const ANSWERED = 'src/limit/fallback/answered.ts'
const APPLY = 'src/policy/apply.ts'
const CALENDAR = 'src/policy/calendar.ts'
const CACHE = 'src/limit/deny-cache.ts'
const COUNT = 'src/limit/fallback/stored-count.ts'
const KEYS = 'src/limit/fallback/keys.ts'
const LEASES = 'src/limit/fallback/lease-changes.ts'
const LIMITER = 'src/limit/limiter.ts'
const LOCAL = 'src/limit/fallback/local-counters.ts'
const LOG = 'src/limit/memory/call-log.ts'
const CHARGE = 'src/limit/redis/charge.lua'
const CHARGE_ONE = 'src/limit/redis/charge-one.lua'
const MERGE = 'src/limit/redis/merge.lua'
const CHANGES = 'src/limit/redis/changes.ts'
const QUESTION = 'src/limit/redis/question.ts'
const SETTLE = 'src/limit/redis/settle.lua'
const SETTLEMENTS = 'src/limit/fallback/settlements.ts'
const SENDING = 'src/limit/redis/sending.ts'
const RUNNER = 'src/limit/redis/runner.ts'
const STATE = 'src/limit/fallback/key-state.ts'
const PART = 'src/limit/fallback/part.ts'
const STORE = 'src/limit/fallback/store.ts'

type Change = readonly [file: string, text: string, replacement: string]

/** Faults that the simulation finds, by their names: changes of the source. */
export const SOURCE_FAULTS: Readonly<Record<string, readonly Change[]>> = {
  // The fallback.
  'all calls of the store are taken as made at its last answer': [
    [COUNT, 'calendar === undefined ? at + Math.ceil((resetAfterMs - windowMs) * 1000) : at', 'at'],
    [
      COUNT,
      'if (counted.calendar !== undefined || mayHaveCharged || this.#lastAt + windowUs <= at) this',
      'this',
    ],
  ],
  'proofs evict limits': [
    [KEYS, 'isProof ? proofs : limits', 'isProof ? limits : limits'],
    [KEYS, 'MAX_ANSWERS = 20_000', 'MAX_ANSWERS = 3'],
  ],
  'the fallback forgets its calls after half a window': [
    [STATE, 'this.#firstAfter(frame.horizonUs)', 'this.#firstAfter(frame.horizonUs + frame.windowUs / 2)'],
  ],
  'callers do not wait for what is unknown of the clock of Redis': [
    [LOCAL, 'Math.max(MIN_SPREAD_MS, store.spreadMs(quota.key) ?? 0)', '0'],
  ],
  'the fallback does not know the accesses of Redis': [
    [ANSWERED, 'know(quota, quota.access.key).stored', 'know(quota, `${quota.access.key}?`).stored'],
  ],
  'each gateway rounds its part up': [[PART, 'Math.floor(left / gateways)', 'Math.ceil(left / gateways)']],
  // The hand-over.
  'own calls do not count in addition to those of the store': [
    [STORE, 'store.charge(quotas, local.own, lease)', 'store.charge(quotas, undefined, lease)'],
  ],
  'a merge that was sent does not count': [[CHARGE, 'log.isMerged and 0 or sent', '0']],
  'a merge without an answer is taken as done': [
    [STATE, 'this.#sent.isUnderWay = false', 'this.onMerged(this.#sent.merge.number)'],
  ],
  'a merge is repeated': [
    [MERGE, '>= number then return { now, 1 } end', '> 1e15 then return { now, 1 } end'],
  ],
  'merged calls are taken as made now': [[MERGE, 'min(numbers[at], now)', 'now']],
  'calls of the older half of the window are not merged': [
    [MERGE, 'local isWanted = instant > horizon', 'local isWanted = instant > now - window / 2'],
  ],
  'an access that another gateway has charged is merged': [
    [MERGE, 'if isWanted and access then', 'if false then'],
  ],
  // The limiter.
  'a refusal is cached for too long': [
    [CACHE, 'askedAt + retryAfterMs <= at', 'askedAt + retryAfterMs + 2 <= at'],
  ],
  // Settlements.
  'calls are never settled': [[LIMITER, 'void store.settle(decision, corrections)', 'void undefined']],
  'a settlement is repeated': [
    [SETTLE, '>= tonumber(ARGV[1]) then return { now, 1 } end', '> 1e15 then return { now, 1 } end'],
  ],
  'a settlement without an answer is taken as done': [[SETTLEMENTS, '() => false,', '() => true,']],
  'a settlement of any call changes the oldest one': [
    [CHANGES, 'earliestUs: chargedUs, latestUs: chargedUs', 'earliestUs: 0, latestUs: chargedUs'],
  ],
  'a settlement takes points of other calls': [[SETTLE, 'for at = 1, last, 2 do', 'for at = 1, count, 2 do']],
  'an own call is settled only in the store': [[STATE, 'own === undefined ||', 'true ||']],
  'a settlement does not wait for the merge of its call': [
    [SETTLEMENTS, '!isMerging(quota.key)', '(isMerging(quota.key) || true)'],
  ],
  'a call that is settled leaves no room in an outage': [
    [COUNT, 'Math.max(0, this.#used + points)', 'this.#used'],
  ],
  // The scripts.
  'an access is under way as long as its window': [[APPLY, 'windowMs: together,', 'windowMs,']],
  'an access never groups its calls': [
    [CHARGE, 'local isFree = access and used > 0', 'local isFree = access and used < 0'],
    ['src/limit/quota.ts', 'isInAccess && used > 0', 'isInAccess && used < 0'],
  ],
  'an access never ends while its limit has calls': [
    [CHARGE, 'and access.total + access.own > access.gone', 'and true'],
  ],
  'a free call renews its access': [
    [CHARGE, 'access.room, access = log.room, nil', 'access.room, access = PAYS, nil'],
  ],
  'sliding windows are twice as long': [
    [SENDING, 'const lengthUs = windowMs * 1000', 'const lengthUs = windowMs * 1900'],
    [LOG, 'const windowUs = windowMs * 1000', 'const windowUs = windowMs * (calendar ? 1000 : 1900)'],
  ],
  'the calls of the most frequent question leave early': [
    [CHARGE_ONE, 'local horizon, steps = now - window', 'local horizon, steps = now - window / 2'],
  ],
  'a clock that is set back locks a key for two windows': [
    [CHARGE, 'log.newest - now > window then', 'log.newest - now > 2 * window then'],
  ],
  'a deadline is a timeout too late': [
    [RUNNER, 'localMs + remainingMs(), bound', 'localMs + remainingMs() + 100, bound'],
  ],
  'a week begins a day late': [[CALENDAR, "DAYS.indexOf('thursday')", "DAYS.indexOf('wednesday')"]],
  // Costs.
  'a cost of points is one point in Redis': [[CHARGE, 'log.total + log.cost', 'log.total + 1']],
  'a cost is not asked for': [
    [CHARGE, 'used + cost <= calls', 'used < calls'],
    [LOCAL, 'room >= cost', 'room > 0'],
  ],
  'a cost has the wait of one point': [[CHARGE, 'log.cost - 1 or 0', '0 or 0']],
  'a cost of points is one point in an outage': [[STATE, 'this.#total += cost', 'this.#total += 1']],
  'a cost above the part of a gateway never passes': [
    [PART, 'Math.max(cost, least, Math', 'Math.max(1, Math'],
  ],
  'the waits of several costs are forgotten in an outage': [
    [COUNT, 'if (waitsLonger) (this', 'if (false) (this'],
  ],
  'the waits of several costs do not end': [
    [COUNT, 'if (!isKnown) this.#refused', 'if (false) this.#refused'],
  ],
  'the wait of a cost is that of another': [
    [CACHE, 'answers.find((one) => isOf(name, cost, one))', 'answers[0]'],
  ],
  'one point of a cost is settled': [[LIMITER, '?? cost) - cost', '?? cost) - 1']],
  // Shares.
  'a share has a counter of its own': [
    ['src/policy/parts.ts', 'const name = nameInKeys(limit)', 'const { name } = limit'],
  ],
  'a share is not asked with the limit that it counts': [[APPLY, 'a.limit - b.limit', 'b.limit - a.limit']],
  'a call of a share and of the limit that it counts is charged twice': [
    [APPLY, 'hasShares ? oncePerCounter(quotas) : quotas', 'quotas'],
  ],
  'the refusal of a share is cached for the limit that it counts': [
    [CACHE, 'answer.cost === cost && answer.allowance.name === name', 'answer.cost === cost'],
    [CACHE, 'allowance.limit !== limit || allowance.windowMs', 'allowance.windowMs'],
  ],
  'a shadow share replaces the limit that it counts': [
    [APPLY, 'all.filter(({ shadow }) => !shadow).toSorted', 'all.toSorted'],
  ],
  'a shadow share is charged by itself': [[APPLY, 'all.filter(({ counts }) => counts === undefined)', 'all']],
  // Calls at once.
  'the end of a call at once does not end its lease': [
    [STORE, 'if (lease?.mayBeStored) leaseChanges.end(lease)', 'void lease'],
  ],
  'the leases of calls at once are not renewed': [[LEASES, 'leases.dueForRenewal(clock.now())', '[]']],
  'calls at once count though their leases have ended by themselves': [
    [CHARGE, "count = count - call('ZREMRANGEBYSCORE', name, '-inf', now)\n", '\n'],
  ],
  'calls at once of the gateway do not count in addition to those of Redis': [
    [LOCAL, 'leases.countUnstored(key, clock.now())', '0 * leases.countUnstored(key, clock.now())'],
  ],
  'a call at once whose answer was lost keeps its lease': [
    [STORE, 'leaseChanges.end({ quota, id: lease! })', 'void quota'],
  ],
  'the part of a gateway of calls at once is the whole limit': [
    [LOCAL, 'leases.count(quota.key) < partOf(quota, gateways)', 'leases.count(quota.key) < quota.limit'],
  ],
  'calls at once that were admitted without Redis do not count': [
    [LOCAL, 'return leases.hold(quota, lease!, -Infinity, at / 1000)', 'return undefined'],
  ],
  'a call that is refused keeps a place of calls at once': [
    [CHARGE, 'if hasRoom and charges and admitted then', 'if hasRoom and charges then'],
  ],
  'a gateway refuses calls at once with one place left': [
    [STORE, 'count(key) < limit ||', 'count(key) < limit - 1 ||'],
  ],
  'a gateway does not refuse by its own calls at once': [
    [STORE, 'count(key) < limit ||', 'count(key) >= 0 ||'],
  ],
  'the period of a calendar is that of the gateway': [
    [RUNNER, "clocks.at(server, clock.now(), 'latest') ??", 'undefined ??'],
    [QUESTION, 'untilUs, fromUs, logs.length', 'sending.deadlineUs, 0 * fromUs * untilUs, logs.length'],
  ],
}
