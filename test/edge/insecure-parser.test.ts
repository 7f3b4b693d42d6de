import { expect, it } from 'vitest'
import { call, ROUTES, yaml } from '../helpers/gateway.ts'
import { serving } from '../helpers/process.ts'
import { raw, statuses } from '../helpers/raw.ts'
import { startRawUpstream, startUpstream } from '../helpers/upstream.ts'

const back = await startUpstream()
const broken = await startRawUpstream((socket) =>
  socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding : chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n'),
)
const gateway = await serving(
  yaml({
    data: broken.url,
    identity: back.url,
    routes: [...ROUTES, { match: '/broken', upstream: 'data', authenticate: 'none' }],
  }),
  [],
  { NODE_OPTIONS: '--insecure-http-parser' },
)

it.each([
  [
    'Content-Length: 40\r\nTransfer-Encoding : chunked',
    '0\r\n\r\nGET /oidc/admin HTTP/1.1\r\nHost: a\r\n\r\n',
  ],
  ['Content-Length : 5', 'hello'],
  ['X: a\u0000b', ''],
])('refuses %j under --insecure-http-parser', async (fields, body) => {
  const before = back.seen.length
  const { text } = await raw(gateway.port, `POST /oidc/auth HTTP/1.1\r\nHost: a\r\n${fields}\r\n\r\n${body}`)
  expect(statuses(text)).toEqual([400])
  expect(back.seen).toHaveLength(before)
})

it('refuses a malformed response under --insecure-http-parser, and warns of the option', async () => {
  expect((await call(gateway.port, { path: '/broken' })).status).toBe(502)
  expect(gateway.lines()).toContainEqual(
    expect.objectContaining({ level: 'warn', where: 'Node.js', path: '--insecure-http-parser' }),
  )
})
