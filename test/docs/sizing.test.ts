import { describe, expect, it } from 'vitest'
import { DOCS, fileText } from '../helpers/repository.ts'

/** The sums of docs/sizing.md follow from its measured table, and each measurement has its command. */
const page = fileText('docs/sizing.md')
/** The part of a core that a plan may use. */
const PLANNED = 0.6

/** Returns the rows of a table between comments, without its header. */
function tableOf(name: string): readonly (readonly string[])[] {
  const [, text = ''] = new RegExp(`<!-- ${name}: begin -->([^]*)<!-- ${name}: end -->`).exec(page) ?? []
  const [, , ...rows] = text.trim().split('\n')
  return rows.map((row) =>
    row
      .split('|')
      .slice(1, -1)
      .map((cell) => cell.trim()),
  )
}
const numberOf = (cell: string): number => Number(/[\d,.]+/.exec(cell)![0].replaceAll(',', ''))

const capacity = new Map(
  tableOf('capacity').map(([call, us, redisUs, perSecond]) => [
    call!,
    { us: numberOf(us!), redisUs: numberOf(redisUs!), perSecond: numberOf(perSecond!) },
  ]),
)

describe('docs/sizing.md', () => {
  it('computes the calls a second of each kind from its processor time', () => {
    expect(capacity.size).toBeGreaterThan(8)
    for (const [call, { us, perSecond }] of capacity)
      expect(perSecond, call).toBe(Math.round((PLANNED * 1e4) / us) * 100)
  })

  it('multiplies the calls a second of a process by the workers', () => {
    const rows = tableOf('workers')
    expect(rows.map(([workers]) => workers)).toEqual(['2', '4', '6', '8'])
    for (const [workers, seen, unseen] of rows) {
      const times = (call: string) => capacity.get(call)!.perSecond * Number(workers)
      expect(numberOf(seen!)).toBe(times('token seen before, one limit'))
      expect(numberOf(unseen!)).toBe(times('new token (RS256), one limit'))
    }
  })

  it('adds up the example, and rounds it up to processes', () => {
    const rows = tableOf('example')
    const parts = rows.slice(0, -1).map(([call, calls, cores, redisCores]) => {
      const { us, redisUs } = capacity.get(call!)!
      expect(numberOf(cores!), call).toBeCloseTo((numberOf(calls!) * us) / 1e6, 2)
      expect(numberOf(redisCores!), call).toBeCloseTo((numberOf(calls!) * redisUs) / 1e6, 2)
      return [numberOf(calls!), numberOf(cores!), numberOf(redisCores!)] as const
    })
    const sum = (column: 0 | 1 | 2): number => parts.reduce((total, part) => total + part[column], 0)
    const [, calls, cores, redisCores] = rows.at(-1)!
    expect([numberOf(calls!), numberOf(cores!)]).toEqual([sum(0), Number(sum(1).toFixed(2))])
    expect(numberOf(redisCores!)).toBeCloseTo(sum(2), 2)
    const [, needed, pods] = /= ([\d.]+) processes[^]*?so (\d+) pods/.exec(page)!
    expect(Number(needed)).toBeCloseTo(numberOf(cores!) / PLANNED, 2)
    expect(Number(pods)).toBe(Math.ceil(Number(needed)) + 1)
  })
})

it.each(['README.md', 'CONTRIBUTING.md', ...DOCS])('%s names existing rows of the benchmark', (name) => {
  const known = `${fileText('bench/rows.ts')}\n${fileText('bench/figures.ts')}`
  for (const [, rows] of fileText(name).matchAll(/npm run bench -- --rows ([\w,]+)/g))
    for (const row of rows!.split(',')) expect(known, row).toMatch(new RegExp(`^  ${row}[:,]`, 'm'))
})

/** The bounds of "What grows", by the beginning of a row: its numbers, and the constants of the source. */
const BOUNDS: readonly (readonly [
  row: string,
  numbers: readonly string[],
  file: string,
  constant: string,
])[] = [
  ['tokens seen before', ['10,000'], 'authenticate/token/bearer.ts', 'CACHED_TOKENS = 10_000'],
  ['tokens seen before', ['16 MB'], 'authenticate/token/bearer.ts', 'CACHED_BYTES = 16 * 1024 * 1024'],
  ['opaque tokens', ['10,000', '5 s'], 'authenticate/token/introspection.ts', 'atMost(10_000), ttl: 5000'],
  ['opaque tokens', ['32'], 'authenticate/token/introspection.ts', 'MAX_CONCURRENT = 32\n'],
  ['opaque tokens', ['1,000'], 'authenticate/token/introspection.ts', 'MAX_WAITING = 1000\n'],
  ['counters that Redis', ['10,000', '20,000'], 'limit/fallback/keys.ts', 'MAX_ANSWERS = 20_000'],
  ['cached refusals', ['10,000'], 'limit/deny-cache.ts', 'MAX_KEYS = 10_000'],
  ['digests', ['10,000'], 'policy/secret-values.ts', 'MAX_CACHED = 10_000'],
  ['keys of DPoP proofs', ['1,000'], 'authenticate/proof/dpop.ts', 'CACHED_KEYS = 1000\n'],
  ['failures by address', ['10,000'], 'gateway/failures.ts', 'MAX_ADDRESSES = 10_000'],
  ['sampled keys', ['10,000'], 'observe/access-log.ts', 'MAX_KEYS = 10_000'],
  ['callers of the console', ['256'], 'admin/overview/caller-table.ts', 'MAX_CALLERS = 256'],
  ['callers of the console', ['100'], 'admin/overview/activity.ts', 'MAX_SHOWN = 100\n'],
  ['gateways of the console', ['100'], 'admin/overview/gateways.ts', 'MAX_GATEWAYS = 100\n'],
  ['gateways of the console', ['1,000'], 'limit/redis/summaries.ts', 'MAX_SUMMARIES = 1000\n'],
  ['gateways of the console', ['1 kB'], 'admin/overview/summary.ts', 'MAX_LENGTH = 1024\n'],
  ['calls in progress', ['30 s'], 'policy/limit.ts', 'MAX_LEASE_MS = 30_000'],
  ['settlements', ['100,000'], 'limit/fallback/settlements.ts', 'MAX_WAITING = 100_000'],
  ['marks of merges', ['10,000'], 'limit/redis/marks.ts', 'MAX_REMEMBERED = 10_000'],
  ['overrides', ['10,000'], 'policy/overrides.ts', 'MAX_OVERRIDES = 10_000'],
  ['overrides', ['4 kB'], 'policy/overrides.ts', 'MAX_LENGTH = 4096\n'],
  ['lines of the audit file', ['1,000'], 'observe/audit-file.ts', 'MAX_WAITING = 1000\n'],
  ['spans', ['2,048'], 'observe/tracing.ts', 'MAX_QUEUED = 2048\n'],
  ['events', ['50'], 'admin/overview/overview.ts', 'MAX_EVENTS = 50\n'],
  ['keys of an issuer', ['1 MB'], 'authenticate/jose/fetch-json.ts', 'MAX_BYTES = 1024 * 1024\n'],
  ['keys of an issuer', ['100'], 'authenticate/jose/key-set.ts', 'MAX_KEYS = 100\n'],
  ['keys of an issuer', ['256 kB', '20'], 'authenticate/token/jwks.ts', 'maxBytes: 256 * 1024, maxKeys: 20'],
  ['kept configuration', ['256 MB'], 'config/kept/kept-file.ts', 'MAX_BYTES = 256 * 1024 ** 2'],
]

it.each(BOUNDS)('bounds %s by %j', (row, numbers, file, constant) => {
  const source = fileText(`src/${file}`)
  expect(source).toContain(constant)
  const found = page.split('\n').find((line) => line.startsWith(`| ${row}`))
  for (const number of numbers) expect(found).toContain(number)
})
