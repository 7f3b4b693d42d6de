import { describe, expect, it } from 'vitest'
import type { Client, Par } from '../../src/config/schema.ts'
import { createGuards } from '../../src/process/open-par.ts'
import { createLog } from '../../src/observe/log.ts'
import { ISSUER, plain, push, refusal, PASSED } from '../helpers/par-request.ts'

const { log } = await createLog('silent', 'json')
const PAR: Par = {
  issuer: ISSUER,
  audiences: [],
  assertionAudience: 'compatible',
  leewayMs: 0,
  maxBody: 65_536,
  unknownClients: 'forward',
}
const client = (id: string, issuer?: string): Client => ({
  ...{ id, plain: id, issuer, caller: id, name: undefined, jwks: undefined, authentication: undefined },
  requestObjectSigningAlg: issuer === undefined ? 'PS256' : 'ES256',
})

describe('the clients of the PAR endpoint', () => {
  it('are those of its issuer and those that name none, the former first', async () => {
    const other = 'https://other.example.com'
    const clients = [client('both', ISSUER), client('both'), client('unnamed'), client('foreign', other)]
    const guard = createGuards(log).guard(PAR, clients)!
    const send = (id: string) => push(guard, plain(id))
    expect(await send('both')).toEqual(refusal(400, 'invalid_request', /signed with ES256/))
    expect(await send('unnamed')).toEqual(refusal(400, 'invalid_request', /signed with PS256/))
    expect(await send('foreign')).toBe(PASSED)
  })
})
