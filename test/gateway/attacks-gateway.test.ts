import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createForgeries, type Ground, mallory } from '../authenticate/token/forgeries.ts'
import { call, startGateway, type TestGateway } from '../helpers/gateway.ts'
import { makeKey, startIssuer, type TestIssuer } from '../helpers/issuer.ts'
import { startUpstream, type TestUpstream } from '../helpers/upstream.ts'

const ground = {} as Ground
const { forged, notAccess } = createForgeries(ground)
const forgeries = { ...forged, ...notAccess }
let trap: Server
let sprung = 0
let data: TestUpstream
let issuer: TestIssuer
let gateway: TestGateway

const gatewayOf = ({ issuer, audience }: TestIssuer): Promise<TestGateway> =>
  startGateway({
    data: data.url,
    tokens: `tokens: { issuer: "${issuer}", audience: "${audience}", realm: test }`,
    listen: ', maxHeaderSize: 64kB',
  })

beforeAll(async () => {
  trap = createServer((_, response) => {
    sprung++
    response.end(JSON.stringify({ keys: [mallory.jwk] }))
  }).listen(0, '127.0.0.1')
  ;[data, issuer] = await Promise.all([startUpstream(), startIssuer()])
  Object.assign(ground, { issuer, trapUrl: `http://127.0.0.1:${(trap.address() as AddressInfo).port}/jwks` })
  gateway = await gatewayOf(issuer)
})
afterAll(async () => {
  await gateway.close()
  trap.close()
  await Promise.all([data.close(), issuer.close()])
})

describe('through the gateway', () => {
  it.each(Object.keys(forgeries))(
    'refuses a token that is not an access token of the issuer with 401: %s',
    async (name) => {
      const refused = await call(gateway.port, { token: forgeries[name]!() })
      expect(refused.status).toBe(401)
      expect(refused.headers['www-authenticate']).toMatch(
        /^Bearer realm="test", error="invalid_token", error_description="[ !#-[\]-~]+"$/,
      )
      expect(refused.headers['cache-control']).toBe('no-store')
      expect(refused.headers['x-ratelimit-limit']).toBeUndefined()
      expect(refused.json).toMatchObject({ status: 401, code: 'Unauthorized' })
      expect(data.seen).toEqual([])
    },
  )

  it('accepts a valid token, and fetches no URL of the invalid tokens', async () => {
    expect((await call(gateway.port, { token: issuer.token() })).status).toBe(200)
    expect(data.seen).toHaveLength(1)
    expect(sprung).toBe(0)
  })

  it('ignores a token in the query or in the body', async () => {
    const token = issuer.token()
    const answers = [
      await call(gateway.port, { path: `/transactions?access_token=${token}` }),
      await call(gateway.port, {
        method: 'POST',
        headers: { 'Content-Type': 'application/x-www-form-urlencoded' },
        body: `access_token=${token}`,
      }),
    ]
    for (const { status, headers } of answers) {
      expect([status, headers['www-authenticate']]).toEqual([401, 'Bearer realm="test"'])
    }
    expect(data.seen).toHaveLength(1)
  })
})

describe('the keys of an issuer', () => {
  it('are read again when they change, and stay in use while the issuer is down', async () => {
    const moving = await startIssuer({ algorithms: ['ES256'] })
    const following = await gatewayOf(moving)
    const statusOf = async (token: string) => (await call(following.port, { token })).status
    const old = moving.token()
    expect(await statusOf(old)).toBe(200)
    moving.rotate()
    expect(await statusOf(moving.token())).toBe(200)
    expect(await statusOf(old)).toBe(401)

    moving.fault = 'down'
    for (let i = 0; i < 3; i++) {
      expect(await statusOf(moving.token())).toBe(200)
      expect(await statusOf(moving.token({}, { key: makeKey('ES256') }))).toBe(401)
    }
    await moving.close()
    expect(await statusOf(moving.token())).toBe(200)
    await following.close()
  })
})
