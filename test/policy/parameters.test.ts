import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { statedLength } from '../../src/policy/parameter-kinds.ts'
import { call, startGateway, type TestGateway, token } from '../helpers/gateway.ts'
import { startUpstream, type TestUpstream } from '../helpers/upstream.ts'

const UUID = '1ffe704d-3962-4a92-8c8e-293880fb449a'
const BARE = UUID.replaceAll('-', '')

let data: TestUpstream
let gateway: TestGateway
beforeAll(async () => {
  data = await startUpstream((_, response) => response.end('{}'))
  gateway = await startGateway({
    data: data.url,
    limits: {
      plain: { per: ['client', 'text'], limit: 1, window: '1h' },
      uuid: { per: ['client', 'connection'], limit: 1, window: '1h' },
      integer: { per: ['client', 'number'], limit: 1, window: '1h' },
      pattern: { per: ['client', 'account'], limit: 1, window: '1h' },
    },
    more: {
      parameters: { connection: 'uuid', number: 'integer', account: '[A-Za-zÀ-ž]{2}[0-9.]+|none' },
    },
    routes: [
      { match: '/plain/:text', upstream: 'data', authenticate: 'bearer', limits: ['plain'] },
      { match: '/uuid/:connection', upstream: 'data', authenticate: 'bearer', limits: ['uuid'] },
      { match: '/integer/:number', upstream: 'data', authenticate: 'bearer', limits: ['integer'] },
      { match: '/pattern/:account', upstream: 'data', authenticate: 'bearer', limits: ['pattern'] },
      { match: '/free/:connection', upstream: 'data', authenticate: 'bearer' },
    ],
  })
})
afterAll(async () => {
  await gateway?.close()
  await data?.close()
})

let clients = 0
/** Returns the statuses of calls of a new client. */
async function statusesOf(paths: readonly string[]): Promise<number[]> {
  const mine = await token(`client-${clients++}`)
  const statuses: number[] = []
  for (const path of paths) statuses.push((await call(gateway.port, { path, token: mine })).status)
  return statuses
}

describe('a path parameter that a limit counts by', () => {
  it.each([
    ['plain', ['a', 'Z-9_:@~=', '0', 'a%3Ab', 'x'.repeat(128)]],
    ['uuid', [UUID]],
    ['integer', ['0', '7', '120', '9'.repeat(128)]],
    ['pattern', ['GB12.3', '%C3%A9x1', 'none']],
  ])('a path parameter of the kind %s is forwarded and counted', async (kind, ids) => {
    const paths = ids.map((id) => `/${kind}/${id}`)
    expect(await statusesOf([...paths, ...paths])).toEqual([...ids.map(() => 200), ...ids.map(() => 429)])
  })

  it.each([
    [
      'plain',
      ['a.json', 'a.', 'a+', 'a,', '(a)', "'a'", '%22a%22', 'a%23f', 'a%3Fx', 'a%20', '%C3%A9', '%E2%80%8Ba'],
    ],
    ['plain', ['x'.repeat(129)]],
    [
      'uuid',
      [
        BARE,
        `%7B${UUID}%7D`,
        `urn:uuid:${UUID}`,
        `${UUID}-`,
        `-${UUID}`,
        `${UUID}.json`,
        UUID.replace('-', ''),
      ],
    ],
    ['integer', ['00', '012', '+1', '-1', '1.0', '1e3', '%D9%A1', '0x1', '9'.repeat(129)]],
    ['pattern', ['GB12.3x', 'xGB12.3', 'NONE', 'none%0a', '%CC%80x1']],
  ])('a path parameter of another kind than %s gets a 400, before authentication', async (kind, ids) => {
    const seen = data.seen.length
    for (const id of ids) {
      const refused = await call(gateway.port, { path: `/${kind}/${id}` })
      expect([id, refused.status, refused.json.code]).toEqual([id, 400, 'BadRequest'])
      expect(refused.headers['x-ratelimit-limit']).toBeUndefined()
    }
    expect(data.seen.length).toBe(seen)
  })

  it('a path parameter that a limit counts by is compared ignoring only case', async () => {
    expect(await statusesOf(['/plain/aB', '/plain/Ab', '/plain/a-b'])).toEqual([200, 429, 200])
    expect(await statusesOf([`/uuid/${UUID}`, `/uuid/${UUID.toUpperCase()}/`])).toEqual([200, 429])
    const accents = [
      '/pattern/%C3%A9x1',
      '/pattern/%C3%89X1',
      '/pattern/ex1',
      '/pattern/%C3%B8x1',
      '/pattern/ox1',
    ]
    expect(await statusesOf(accents)).toEqual([200, 429, 200, 200, 200])
  })

  it('a path parameter that a limit counts by may be anything if no limit counts by it', async () => {
    expect(await statusesOf([`/free/${BARE}`, '/free/a.json', '/free/%C3%A9'])).toEqual([200, 200, 200])
  })
})

it.each([
  ['[a-z]+', 0],
  ['[a-z]{128}', 128],
  ['[a-z]{1,400}', 400],
  ['[a-z]{129,}', 129],
  ['[0-9]{64}-[0-9]{65}', 129],
  ['x{100}[{200}]|[0-9]{128}', 128],
  ['x\\{200}', 0],
])('the expression %s states a length of %i', (source, length) => {
  expect(statedLength(source)).toBe(length)
})
