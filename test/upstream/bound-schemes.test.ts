import { describe, expect, it } from 'vitest'
import { get, startFront } from '../helpers/front.ts'
import { startRawUpstream } from '../helpers/upstream.ts'

/** Starts a front for a backend that answers each request with the number of its connection, and `fields`. */
async function numbered(fields = '', status = 200) {
  const back = await startRawUpstream((socket, _, connection) => {
    const body = String(connection)
    const head = `HTTP/1.1 ${status} Some\r\n${fields}Content-Length: ${body.length}\r\n\r\n`
    socket.write(head + body)
  })
  const { port } = await startFront(back.url, { maxConnections: 1 })
  const call = async (headers = {}) => (await get(port, '/', { headers })).body
  return { port, call }
}

describe('a request with credentials for its connection', () => {
  it.each([
    'NTLM TlRMTVNTUAAB',
    'Negotiate YIIB',
    'negotiate YIIB',
    'NEGOTIATE\tYIIB',
    'ntlm',
    'Nego2 YIIB',
    'Kerberos YIIB',
    'CredSSP TlRM',
    'Basic dXNlcjpwYXNz, NTLM TlRM',
    'Digest username="a", Negotiate YIIB',
  ])('has a connection that no other request uses: %s', async (authorization) => {
    const { call } = await numbered()
    expect(await call()).toBe('1')
    expect(await call({ Authorization: authorization })).toMatch(/^1/)
    expect(await call()).toBe('2')
  })

  it('does not give its connection to a request that waits', async () => {
    const { call } = await numbered()
    const all = await Promise.all([call({ Authorization: 'NTLM a' }), call(), call()])
    expect(all.map((text) => text[0])).toEqual(['1', '2', '2'])
  })

  it.each([
    'Bearer eyJhbGciOi',
    'Basic bnRsbTphYmM=',
    'Digest username="x", realm="y"',
    'AWS4-HMAC-SHA256 Credential=a, Signature=b',
  ])('shares a connection with other credentials: %s', async (authorization) => {
    const { call } = await numbered()
    expect(await call({ Authorization: authorization })).toBe('1')
    expect(await call()).toBe('1')
  })
})

describe('a response of a server that authenticates connections', () => {
  it.each([
    ['a challenge', 401, 'WWW-Authenticate: NTLM\r\n'],
    ['a challenge in lower case', 401, 'www-authenticate: negotiate\r\n'],
    ['the second field', 401, 'WWW-Authenticate: Basic realm="a"\r\nWWW-Authenticate: Negotiate\r\n'],
    ['the second challenge of a field', 401, 'WWW-Authenticate: Basic realm="a, b",Negotiate\r\n'],
    ['a field that Connection names', 401, 'Connection: www-authenticate\r\nWWW-Authenticate: NTLM\r\n'],
    ['the last leg', 200, 'WWW-Authenticate: Negotiate oYG2\r\n'],
    ['an error', 500, 'WWW-Authenticate: NTLM TlRM\r\n'],
    ['Authentication-Info', 200, 'Authentication-Info: Negotiate oYG2\r\n'],
    ['Persistent-Auth', 200, 'Persistent-Auth: true\r\n'],
    ['Proxy-Support', 401, 'Proxy-Support: Session-Based-Authentication\r\n'],
  ])('ends its connection: %s', async (_, status, fields) => {
    const { call } = await numbered(fields, status)
    expect([await call(), await call()]).toEqual(['1', '2'])
  })

  it('keeps its connection with another challenge', async () => {
    const { call } = await numbered('WWW-Authenticate: Bearer realm="a", Digest nonce="b"\r\n', 401)
    expect([await call(), await call()]).toEqual(['1', '1'])
  })
})
