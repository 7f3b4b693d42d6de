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
