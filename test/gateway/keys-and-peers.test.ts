import { expect, it } from 'vitest'
import { call, startLogging, written } from '../helpers/gateway.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

/** A file that counts the values of a field which the API checks. */
const api = await startUpstream()
const text = `store: memory
listen: { host: 127.0.0.1, port: 0 }
admin: { port: 0 }
upstreams: { api: { url: "${api.url}" } }
limits: { keys: { per: ["header:x-api-key"], limit: 1000, window: 1m }, addresses: { per: [ip], limit: 5000, window: 1m } }
parameters: { "header:x-api-key": "[A-Za-z0-9._~+/=-]+" }
routes: [{ match: "/*", upstream: api, authenticate: none, limits: [keys, addresses] }]
`
const gateway = await startLogging(written(text))
const lines = (wanted: string) => gateway.lines().filter(({ msg }) => String(msg).includes(wanted))

it.each([
  'abc123',
  'sk_live_51H8x',
  'pk-live.abc',
  'AbC+/dEf==',
  'eyJh.b.c',
  '~A~',
  '123e4567-e89b-12d3-a456-426614174000',
])('a limit by a field counts the key %s', async (key) => {
  expect((await call(gateway.port, { path: '/', headers: { 'X-Api-Key': key } })).status).toBe(200)
  expect(api.seen.at(-1)!.headers['x-api-key']).toBe(key)
})

it('a key that is not of its kind gets a 400 that names the kind, as the log does', async () => {
  const got = await call(gateway.port, { path: '/', headers: { 'X-Api-Key': 'a b' } })
  expect([got.status, got.json.detail]).toEqual([
    400,
    'Send the header field x-api-key once; it must be of the form that is served here, 128 characters at most.',
  ])
  await until('its line', () => lines('request').some(({ status }) => status === 400))
  expect(lines('request').find(({ status }) => status === 400)!['cause']).toBe(
    'header:x-api-key is not of its kind in parameters: [A-Za-z0-9._~+/=-]+',
  )
})

it('X-Forwarded-For of a peer that is not trusted is warned of once, in the log and on the console', async () => {
  for (let i = 0; i < 3; i++) {
    const headers = { 'X-Api-Key': 'a', 'X-Forwarded-For': `192.0.2.${i}` }
    expect((await call(gateway.port, { path: '/', headers })).status).toBe(200)
  }
  await until('the warning', () => lines('X-Forwarded-For').length > 0)
  expect(lines('X-Forwarded-For')).toMatchObject([{ level: 'warn', peer: '127.0.0.1' }])
  const { json } = await call(gateway.adminPort, { path: '/overview' })
  const shown = json.events.map(({ text }: { readonly text: string }) => text)
  expect(shown).toContainEqual(expect.stringMatching(/^X-Forwarded-For ignored.* \(peer 127\.0\.0\.1\)$/))
})
