import { describe, expect, it } from 'vitest'
import { call, startLogging, token } from '../helpers/gateway.ts'
import { answered, raw } from '../helpers/raw.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const SECRET = 'hunter2'
const data = await startUpstream()
const gateway = await startLogging({ data: data.url })

describe('the access log', () => {
  it('logs no authority of CONNECT, and logs the id of its response', async () => {
    const lines = () => gateway.lines().filter(({ msg }) => msg === 'malformed request')
    const { text } = await raw(
      gateway.port,
      `CONNECT user:${SECRET}@x:443 HTTP/1.1\r\nHost: x\r\n\r\n`,
      answered,
    )
    await until('the line', () => lines().length > 0)
    expect(lines()).toMatchObject([{ status: 405, error: 'CONNECT' }])
    expect(text).toContain(`\r\nX-Request-Id: ${String(lines()[0]!['requestId'])}\r\n`)
    expect(gateway.stdout()).not.toContain(SECRET)
  })

  it('escapes bidi marks in the input of callers and operators', async () => {
    const [called, freed] = ['acme\u202E', 'freed\u202E']
    await call(gateway.port, { token: await token(called) })
    await call(gateway.adminPort, { method: 'DELETE', path: `/limits/${encodeURIComponent(freed)}` })
    const lines = () =>
      gateway.lines().filter(({ client, caller }) => client === called || caller === `client:${freed}`)
    await until('both lines', () => lines().length === 2)
    expect(gateway.stdout()).toContain(String.raw`"client":"acme\u202e"`)
    expect(gateway.stdout()).toContain(String.raw`"caller":"client:freed\u202e"`)
    expect(gateway.stdout()).not.toMatch(/[\u007F-\u009F\u202E]/)
  })
})
