import { expect, it } from 'vitest'
import { requestHeaders } from '../src/headers.ts'

it('what was judged cannot be named away by a Connection field', () => {
  const headers = {
    host: 'a',
    authorization: 'Basic x',
    'content-type': 'application/x-www-form-urlencoded',
    'content-encoding': 'identity',
    'x-hop': '1',
    connection: 'authorization, content-type, content-encoding, host, x-hop, x-forwarded-for',
  }
  const forwarded = {
    peer: '1.1.1.1',
    proto: 'http',
    host: 'a',
    port: '80',
    requestId: 'r',
    trusted: false,
  } as const
  const out = requestHeaders(headers, forwarded)
  expect(out).toMatchObject({
    host: 'a',
    authorization: 'Basic x',
    'content-type': headers['content-type'],
    'x-forwarded-for': '1.1.1.1',
  })
  expect(out).not.toHaveProperty('x-hop')
  expect(out).not.toHaveProperty('connection')
})
