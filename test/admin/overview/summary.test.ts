import { describe, expect, it } from 'vitest'
import { parseSummary, type Summary } from '../../../src/admin/overview/summary.ts'

const SUMMARY: Summary = {
  host: 'gw-1',
  pid: 17,
  startedAt: '2026-11-27T02:00:00.000Z',
  version: '1.2.3',
  configuration: 'a'.repeat(64),
  admin: 'http://10.0.0.7:9090',
  calls: 120.4,
  refused: 3,
  failed: 0,
  outage: null,
  withoutRedis: 0,
}

describe('a summary', () => {
  it('a summary is read without the fields of another version', () => {
    expect(parseSummary(JSON.stringify({ ...SUMMARY, colour: 'blue' }))).toEqual(SUMMARY)
    const bare = { ...SUMMARY, configuration: null, admin: null }
    expect(parseSummary(JSON.stringify(bare))).toEqual(bare)
  })

  it.for([
    ['', 'an empty text'],
    ['{', 'a text that is not JSON'],
    ['null', 'null'],
    ['[]', 'a list'],
    [JSON.stringify({ ...SUMMARY, host: undefined }), 'no host'],
    [JSON.stringify({ ...SUMMARY, host: ['gw-1'] }), 'a host that is not a text'],
    [JSON.stringify({ ...SUMMARY, pid: '17' }), 'a process that is not a number'],
    [JSON.stringify({ ...SUMMARY, startedAt: 'yesterday' }), 'a start that is not an instant'],
    [JSON.stringify({ ...SUMMARY, startedAt: '2026' }), 'a start that is only a year'],
    [JSON.stringify({ ...SUMMARY, startedAt: '2026-11-27T02:00:00+01:00' }), 'a start that is not in UTC'],
    [JSON.stringify({ ...SUMMARY, calls: -1 }), 'a negative rate'],
    [JSON.stringify(SUMMARY).replace('120.4', '1e999'), 'an infinite rate'],
    [JSON.stringify({ ...SUMMARY, outage: 5 }), 'an outage that is not a text'],
    [JSON.stringify({ ...SUMMARY, admin: 5 }), 'an address that is not a text'],
    [JSON.stringify({ ...SUMMARY, host: 'x'.repeat(1024) }), 'more than 1024 characters'],
  ] as const)('a summary is ignored if it is %s: %s', ([text]) => {
    expect(parseSummary(text)).toBeUndefined()
  })
})
