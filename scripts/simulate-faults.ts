/**
 * Puts faults into a copy of the limiter, one at a time, and simulates it until the fault is found: `npm run simulate:faults`. Fails
 * if one is not found in two minutes. `-- TEXT`: only those whose name contains the text.
 */
import { spawnSync } from 'node:child_process'
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'

const SECONDS = 120
const STORE = 'src/limit/fallback/store.ts'
const LOCAL = 'src/limit/fallback/local-counters.ts'
const KEYS = 'src/limit/fallback/keys.ts'
const KNOWN = 'src/limit/fallback/known.ts'
const PROTOCOL = 'src/limit/redis/protocol.ts'
const ASK = '.ask(quotas, (additions) => store.charge(quotas, additions))'

/** Names of faults, each with its changes: a file, a text of it, and the replacement. */
const FAULTS: Readonly<
  Record<string, readonly (readonly [file: string, text: string, replacement: string])[]>
> = {
  // The first seven were in the limiter.
  'calls are added only to the server that was asked for them': [
    [STORE, 'const breakers =', 'const asked = new Map<string, string>()\n  const breakers ='],
    [
      STORE,
      'options.onFallback?.(mode, cause)',
      'options.onFallback?.(mode, cause)\n    for (const { key } of quotas) asked.set(key, store.server(key))',
    ],
    [
      STORE,
      'const adding = local.adding(quotas)',
      'const isMoved = quotas.some(({ key }) => (asked.get(key) ?? store.server(key)) !== store.server(key))\n    if (isMoved) return store.charge(quotas)\n    const adding = local.adding(quotas)',
    ],
    [
      STORE,
      '(quota) => isUp([quota])',
      '(quota) => isUp([quota]) && asked.get(quota.key) === store.server(quota.key)',
    ],
  ],
  'added calls are taken as made now': [
    [PROTOCOL, '${atUs} ${count}', '${Number.MAX_SAFE_INTEGER} ${count}'],
  ],
  'all calls of the store are taken as made at its last answer': [
    [KNOWN, 'calendar === undefined ? at + Math.ceil((resetAfterMs - windowMs) * 1000) : at', 'at'],
    [
      KNOWN,
      'if (calendar !== undefined || wasCharged || known.lastAt + windowMs * 1000 <= at) known',
      'known',
    ],
  ],
  'what remained of one limit is taken for the rest of another': [
    [KNOWN, 'known.used = used', 'Object.assign(known, { used, then: limit })'],
    [KNOWN, 'rest, lastAt }: Known', 'rest, lastAt, ...known }: Known'],
    [KNOWN, 'limit - stored', '((known as { then?: number }).then ?? limit) - stored'],
  ],
  'proofs evict limits': [
    [KEYS, 'isProof(quota) ? proofs : limits', 'quota === undefined ? proofs : limits'],
    [KEYS, 'MAX_ANSWERS = 20_000', 'MAX_ANSWERS = 3'],
  ],
  'calls are added only in the background': [[STORE, `local\n      ${ASK}`, 'store.charge(quotas)']],
  'a proof is forgotten when it is added': [
    [KEYS, 'asked.set(known.quota.key, known)', 'if (isProof(known.quota)) asked.delete(known.quota.key)'],
  ],
  // Others.
  'the fallback forgets its calls after half a window': [
    [KNOWN, 'usedIn(own, frame)', 'usedIn(own, { horizonUs: frame.horizonUs + frame.windowUs / 2 })'],
  ],
  'calls count as added although the answer was lost': [
    [
      LOCAL,
      'if (charge !== undefined) {',
      'if (own !== undefined) dropUpTo(own, total)\n        if (charge !== undefined) {',
    ],
  ],
  'a refusal is cached for too long': [
    ['src/limit/limiter.ts', 'askedAt + retryAfterMs <= at', 'askedAt + retryAfterMs + 2 <= at'],
  ],
  'calls of the older half of the window are not added': [
    [
      'src/limit/redis/charge.lua',
      'instant > (start and start - 1 or now - window)',
      'instant > now - window / 2',
    ],
  ],
  'callers do not wait for what is unknown of the clock of Redis': [
    [LOCAL, 'Math.max(MIN_SPREAD_MS, spreadMs(quota.key))', '0'],
  ],
  'calls are given back until the store says so': [
    [LOCAL, '    known.back = undefined\n    return', '    return'],
  ],
  'an access is under way as long as its window': [
    ['src/limit/limit.ts', '...access, key, windowMs: together', '...access, key, windowMs'],
  ],
  'an access never ends while its limit has calls': [
    ['src/limit/redis/charge.lua', 'not access.room and used > 0', 'used > 0'],
  ],
  // Those that break a lower bound, or the bound of a wait.
  'calls are never given back': [
    ['src/limit/limiter.ts', 'store.giveBack(quota, charged.resetAt)', 'void charged.resetAt'],
  ],
  'an access never groups its calls': [
    ['src/limit/redis/charge.lua', 'not access.room and used > 0 and limit > 0', 'used < 0'],
    [
      'src/limit/store.ts',
      'access?.hasRoom === false && each.used > 0',
      'access?.hasRoom === false && each.used < 0',
    ],
  ],
  'sliding windows are twice as long': [
    ['src/limit/redis/protocol.ts', '${windowMs * 1000} ${flags}`', '${windowMs * 1900} ${flags}`'],
    [
      'src/limit/memory/call-log.ts',
      'const windowUs = windowMs * 1000',
      'const windowUs = windowMs * (calendar === undefined ? 1900 : 1000)',
    ],
  ],
  'a clock that is set back locks a key for two windows': [
    ['src/limit/redis/charge.lua', 'log.newest - now > window then', 'log.newest - now > 2 * window then'],
  ],
  'each gateway rounds its part up': [[KNOWN, 'Math.floor(calls / gateways)', 'Math.ceil(calls / gateways)']],
  'a free call renews its access': [
    [
      'src/limit/redis/charge.lua',
      'log.room, log.pays = true, false',
      'log.room, log.pays, access.pays = true, false, true',
    ],
    ['src/limit/redis/charge.lua', 'access.pays, access = log.pays, nil', 'access.pays, access = true, nil'],
  ],
  'a call is given back to whatever period it is': [[PROTOCOL, 'endMs === back.endsAt ?', 'endMs > 0 ?']],
  'a deadline is a timeout too late': [
    [
      'src/limit/redis/scripts.ts',
      'clock.now() + remainingMs(), bound',
      'clock.now() + remainingMs() + 100, bound',
    ],
  ],
  'the period of a calendar is that of the gateway': [
    ['src/limit/redis/scripts.ts', "clocks.at(server, clock.now(), 'latest') ||", '0 ||'],
    [PROTOCOL, 'return [fromUs, untilUs]', 'return [0, untilUs === 0 ? 0 : Infinity]'],
  ],
}

let missed = 0
const [wanted = ''] = process.argv.slice(2)
for (const [fault, changes] of Object.entries(FAULTS).filter(([fault]) => fault.includes(wanted))) {
  const copy = mkdtempSync(join(tmpdir(), 'sluice-fault-'))
  for (const name of ['src', 'test', 'scripts', 'package.json', 'tsconfig.json'])
    cpSync(name, join(copy, name), { recursive: true })
  symlinkSync(join(process.cwd(), 'node_modules'), join(copy, 'node_modules'))
  for (const [file, text, replacement] of changes) {
    const before = readFileSync(join(copy, file), 'utf8')
    if (!before.includes(text)) throw new Error(`${file} does not contain: ${text}`)
    writeFileSync(
      join(copy, file),
      before.replace(text, () => replacement),
    )
  }
  const startedAt = performance.now()
  const { stderr } = spawnSync('npx', ['tsx', 'scripts/simulate.ts', '--seconds', String(SECONDS)], {
    cwd: copy,
    encoding: 'utf8',
  })
  const secs = ((performance.now() - startedAt) / 1000).toFixed(0)
  const isFound = stderr.includes('is broken')
  if (!isFound) missed++
  console.log(`${isFound ? 'found' : 'NOT FOUND'} in ${secs} s: ${fault}`)
  const [, broken] = /^(?!npm)(.*is broken.*)$/m.exec(stderr) ?? []
  console.log(`  ${broken ?? stderr.slice(0, 500)}`)
  rmSync(copy, { recursive: true })
}
process.exitCode = missed === 0 ? 0 : 1
