import fc from 'fast-check'
import { expect, it } from 'vitest'
import { Refusal } from '../../src/errors.ts'
import type { Exchange } from '../../src/gateway/exchange.ts'
import { accessLine } from '../../src/observe/access-line.ts'

const allowance = {
  ...{ name: 'requests', limit: 10, windowMs: 1000, remaining: 9, resetAt: 0, resetAfterMs: 0 },
  ...{ retryAfterMs: 0, admitted: true, shadow: false },
}
const bare = {
  ...{ requestId: 'r1', method: 'GET', startedAt: 1, peer: '::1', ip: '::1', trusted: false },
  ...{ source: 'gateway', status: 404 },
} as Exchange
const read = (exchange: Exchange, status = exchange.status): Record<string, unknown> =>
  JSON.parse(accessLine('info', exchange, status, 1.23456)) as Record<string, unknown>

it('tells of a request that nothing is known of', () => {
  expect(read(bare)).toEqual({
    ...{
      level: 'info',
      time: expect.stringMatching(/^\d{4}-.*Z$/) as string,
      requestId: 'r1',
      method: 'GET',
    },
    ...{ ip: '::1', source: 'gateway', status: 404, durationMs: 1.235, msg: 'request' },
  })
})

it('tells of a decision which limit spoke, and which shadow limits would have refused', () => {
  const shadow = { ...allowance, name: 'trial', shadow: true, admitted: false }
  const decision = { admitted: true, allowances: [allowance, shadow], mode: 'store', cached: false } as const
  expect(read({ ...bare, decision })).toMatchObject({
    ...{ decision: 'admitted', limit: 'requests', remaining: 9, mode: 'store', shadowOver: ['trial'] },
  })
  const refusedBy = { ...allowance, name: 'sync', remaining: 0, admitted: false }
  const refused = { ...decision, admitted: false, allowances: [allowance, refusedBy], refusedBy }
  const line = read({ ...bare, decision: refused })
  expect(line).toMatchObject({ decision: 'refused', limit: 'sync', remaining: 0 })
  expect(line).not.toHaveProperty('shadowOver')
  expect(read({ ...bare, decision: { ...decision, allowances: [], mode: 'allow' } })).toMatchObject({
    ...{ decision: 'admitted', mode: 'allow' },
  })
})

it('tells that deny refused what no store decided, and not what a drain cut off before', () => {
  const error = new Refusal('ServiceUnavailable', 'Not now.')
  const denied: Exchange = { ...bare, status: 503, limitAt: 2, error }
  expect(read(denied)).toMatchObject({ mode: 'deny', code: 'ServiceUnavailable' })
  expect(read(denied)).not.toHaveProperty('decision')
  for (const other of [
    { ...denied, incomplete: 'cut' } as const,
    { ...denied, decidedAt: 3 },
    { ...denied, limitAt: undefined as never },
    { ...denied, error: new Refusal('InternalServer', 'A fault.') },
  ]) {
    expect(read(other)).not.toHaveProperty('mode')
  }
})

it('tells when it was decided, on the store’s clock where there is one, to the microsecond', () => {
  const [before, now] = [Date.now(), performance.now()]
  const { decidedAt } = read({ ...bare, startedAt: now - 9000, decidedAt: now - 3000 })
  expect(decidedAt).toBeGreaterThan(before - 3100)
  expect(decidedAt).toBeLessThan(Date.now() - 2900)
  const decision = {
    admitted: true,
    allowances: [],
    mode: 'store',
    decidedAt: 1.0006,
    cached: false,
  } as const
  expect(read({ ...bare, decision, decidedAt: now })).toMatchObject({ decidedAt: 1.001 })
  expect(String(decidedAt)).toMatch(/^\d{13}(\.\d{1,3})?$/)
})

it('is one line of JSON whatever callers and upstreams say', () => {
  const said = fc.string({ unit: 'binary', maxLength: 20 })
  fc.assert(
    fc.property(said, said, said, said, (path, client, method, why) => {
      const error = new Refusal('BadGateway', 'The upstream broke off.', { cause: new Error(why) })
      const exchange: Exchange = { ...bare, method, path: `/${path}`, caller: { client, ip: '::1' }, error }
      const line = accessLine('error', exchange, 502, 1)
      expect(line.indexOf('\n')).toBe(line.length - 1)
      expect(JSON.parse(line)).toMatchObject({
        ...{ level: 'error', client, method: method.slice(0, 16), code: 'BadGateway' },
        ...{ error: 'The upstream broke off.', cause: why },
      })
    }),
  )
})

it.each([
  ['/v3/tx%3Faccess_token=S', '/v3/tx…'],
  ['/v3/tx%3baccess_token=S', '/v3/tx…'],
  ['/v3/tx%23access_token=S', '/v3/tx…'],
  ['/v3/tx%25253faccess_token=S', '/v3/tx…'],
  ['*', '*'],
  ['/a:b/%2F', '/a:b/%2F'],
])('tells of the path %s no more than is surely one', (path, told) => {
  expect(read({ ...bare, path })).toMatchObject({ path: told })
})

it('escapes what moves a cursor or turns the direction of the words', () => {
  const client = 'a\u007f\u009b31m\u202e\u2066\u2028é'
  const line = accessLine('info', { ...bare, path: client, caller: { client, ip: '::1' } }, 200, 1)
  expect(line).toContain(String.raw`"a\u007f\u009b31m\u202e\u2066\u2028é"`)
  expect(JSON.parse(line)).toMatchObject({ client })
})

it('cuts what is long', () => {
  const line = read({
    ...bare,
    method: 'M'.repeat(99),
    path: `/${'x'.repeat(999)}`,
    forwarded: { outcome: 'left', givenUp: 'slow' },
    host: 'h'.repeat(300),
  })
  expect(line).toMatchObject({ method: 'M'.repeat(16), path: `/${'x'.repeat(255)}…`, cause: 'slow' })
  expect(line['host']).toBe(`${'h'.repeat(256)}…`)
})
