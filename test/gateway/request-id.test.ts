import { expect, it } from 'vitest'
import { call, startGateway } from '../helpers/gateway.ts'
import { raw } from '../helpers/raw.ts'
import { startUpstream } from '../helpers/upstream.ts'

/** The rest of `scenarios/request-id.yaml`. */

const gateway = await startGateway({ data: (await startUpstream()).url })
const UUID = /^[\da-f]{8}-[\da-f]{4}-4[\da-f]{3}-[89ab][\da-f]{3}-[\da-f]{12}$/

it('X-Request-Id is different for each of many requests', async () => {
  const got = await Promise.all(Array.from({ length: 300 }, () => call(gateway.port, { path: '/oidc/x' })))
  const ids = got.map(({ headers }) => headers['x-request-id'])
  for (const id of ids) expect(id).toMatch(UUID)
  expect(new Set(ids).size).toBe(300)
})

it('X-Request-Id is a new id for too many fields', async () => {
  const { text } = await raw(gateway.port, `GET / HTTP/1.1\r\nHost: a\r\n${'A: b\r\n'.repeat(300)}\r\n`)
  expect(text).toMatch(/^HTTP\/1.1 431 /)
  expect(/^X-Request-Id: (.*)\r$/m.exec(text)?.[1]).toMatch(UUID)
})
