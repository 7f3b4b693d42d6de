import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type IntrospectionServer, startIntrospection } from '../helpers/introspection-server.ts'
import { settingsOf } from '../helpers/trust.ts'
import type { Tokens } from '../../src/config/schema.ts'
import { createGuards } from '../../src/process/open-par.ts'
import { createIssuers } from '../../src/process/open-issuers.ts'
import type { Log } from '../../src/observe/log.ts'
import { startIssuer, type TestIssuer } from '../helpers/issuer.ts'
import { assertion, plain, push } from '../helpers/par-request.ts'
import { until } from '../helpers/wait.ts'

type Line = readonly [level: string, fields: object, message: string]
const told: Line[] = []
const tell = (level: string) => (fields: object, message: string) => told.push([level, fields, message])
const log = { warn: tell('warn'), info: tell('info') } as unknown as Log
let issuer: TestIssuer
let introspection: IntrospectionServer
let settings: Tokens

beforeAll(async () => {
  ;[issuer, introspection] = await Promise.all([startIssuer({ algorithms: ['ES256'] }), startIntrospection()])
  const { url } = introspection
  const endpoint = {
    url: `${url}?apikey=hunter2`,
    clientId: 'sluice',
    clientSecret: 's3cret',
    timeoutMs: 3000,
    maxAgeMs: 0,
  }
  settings = settingsOf(issuer, { introspection: endpoint })
})
afterAll(() => Promise.all([issuer.close(), introspection.close()]))

const OF_CLIENT = {
  issuer: undefined,
  caller: 'remote',
  name: undefined,
  authentication: undefined,
  requestObjectSigningAlg: undefined,
}
const messages = () => told.map(([level, , message]) => `${level}: ${message}`)

describe('what operators are told, once an outage and when it is over:', () => {
  it('the keys of an issuer, by its name', async () => {
    told.length = 0
    issuer.fault = 'error'
    const issuers = createIssuers(log)
    issuers.authenticate([settings], [])
    await until('the outage is told', () => told.length > 0)
    issuer.fault = undefined
    await until('its end is told', () => told.length > 1)
    expect(messages()).toEqual([
      'warn: the keys of the issuer cannot be read; trying again',
      'info: the keys of the issuer are read again',
    ])
    for (const [, fields] of told) expect(fields).toMatchObject({ issuer: issuer.issuer })
    issuers.end()
  })

  it('the introspection of opaque tokens, without the token', async () => {
    const issuers = createIssuers(log)
    const authenticate = issuers.authenticate([settings], [])
    await authenticate([`Bearer ${issuer.token()}`])
    told.length = 0
    introspection.answer = (response) => response.writeHead(500).end()
    let asked = 0
    const ask = () => authenticate([`Bearer opaque-${asked++}`])
    await until('the outage is told', async () => (await ask(), told.length > 0))
    introspection.answer = { active: false }
    await until('its end is told', async () => (await ask(), told.length > 1))
    expect(messages()).toEqual([
      'warn: opaque tokens cannot be looked up; trying again',
      'info: opaque tokens are looked up again',
    ])
    expect(JSON.stringify(told)).not.toMatch(/opaque-|s3cret|hunter2/)
    issuers.end()
  })

  it('the keys of a client, by its id', async () => {
    told.length = 0
    issuer.fault = 'error'
    const guards = createGuards(log)
    const guard = guards.guard(
      {
        issuer: 'https://identity.example.com/oidc',
        audiences: [],
        assertionAudience: 'compatible',
        leewayMs: 0,
        maxBody: 1024,
        unknownClients: 'forward',
      },
      [{ ...OF_CLIENT, id: 'remote', plain: 'remote', jwks: { url: issuer.jwksUri } }],
    )!
    expect(told).toEqual([])
    expect(await push(guard, plain('remote', assertion('remote')))).toMatchObject({ status: 503 })
    expect(told).toHaveLength(1)
    issuer.fault = undefined
    await until('its end is told', () => told.length > 1)
    expect(messages()).toEqual([
      'warn: the keys of the client cannot be read; trying again',
      'info: the keys of the client are read again',
    ])
    for (const [, fields] of told) expect(fields).toMatchObject({ client: 'remote' })
    guards.end()
  })
})
