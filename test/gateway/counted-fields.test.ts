import { expect, it } from 'vitest'
import { call, startLogging } from '../helpers/gateway.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

/** The rest of `scenarios/counted-fields.yaml`: the fields that are dropped, in the log and the metrics. */

const data = await startUpstream()

it('forwards and counts a field of callers that is dropped without callerHeaders', async () => {
  const gateway = await startLogging({
    data: data.url,
    upstream: { callerHeaders: ['X-Client-Id'] },
    limits: { counted: { per: ['header:x-client-id'], limit: 3, window: '1m' } },
    routes: [
      { match: '/identity/*', upstream: 'identity', authenticate: 'none' },
      { match: '/*', upstream: 'data', authenticate: 'none', limits: ['counted'] },
    ],
    more: { log: { level: 'debug' } },
  })
  const send = (path: string, headers: Record<string, string>) => call(gateway.port, { path, headers })
  const statuses: number[] = []
  for (let i = 0; i < 4; i++)
    statuses.push((await send('/x', { 'X-Client-Id': 'a', Connection: 'x-client-id' })).status)
  expect(statuses).toEqual([200, 200, 200, 429])
  expect(data.seen.at(-1)!.headers['x-client-id']).toBe('a')
  expect((await send('/x', { 'X-Client-Id': 'b', X_Client_Id: 'a' })).status).toBe(200)
  expect(data.seen.at(-1)!.rawHeaders.filter((name) => /client.id/i.test(name))).toEqual(['x-client-id'])
  await send('/identity/x', { 'X-Client-Id': 'a', 'X-Gift-Certificate': 'b' })
  expect(data.seen.at(-1)!.headers).not.toHaveProperty('x-client-id')
  const dropped = () => gateway.lines().filter(({ msg }) => msg === 'request field dropped')
  await until('three dropped fields', () => dropped().length === 3)
  expect(dropped().map(({ level, upstream, field }) => [level, upstream, field])).toEqual([
    ['debug', 'data', 'x_client_id'],
    ['debug', 'identity', 'x-client-id'],
    ['debug', 'identity', 'x-gift-certificate'],
  ])
  const { body } = await call(gateway.adminPort, { path: '/metrics' })
  expect(body).toMatch(/^sluice_request_fields_dropped_total\{upstream="identity"\} 2$/m)
})
