import { describe, expect, it } from 'vitest'
import { startGateway, token } from '../helpers/gateway.ts'
import { raw, statuses } from '../helpers/raw.ts'
import { ANOTHER, CANONICAL, REFUSED, SAME, type Spelling } from './aliases.ts'
import { FRAMEWORKS, type Received, sameInDatabases } from './frameworks.ts'
import { startStrictUpstream, type WireRequest } from './strict-upstream.ts'
import { words } from '../helpers/words.ts'

const AT_ONCE = 20

const back = await startStrictUpstream()
const gateway = await startGateway({
  data: back.url,
  limit: 1_000_000,
  syncWindow: '1h',
  listen: { hosts: ['api.example.com'] },
  routes: [
    {
      match: 'POST /sync/:connection',
      upstream: 'data',
      authenticate: 'bearer',
      limits: ['requests', 'sync'],
    },
    {
      match: 'POST /:version/sync/:connection',
      upstream: 'data',
      authenticate: 'bearer',
      limits: ['requests', 'sync'],
    },
    { match: '/*', upstream: 'data', authenticate: 'bearer', limits: ['requests'] },
  ],
})

const lineOf = (spelling: Spelling): string =>
  typeof spelling === 'string' ? `POST ${spelling}` : spelling.line
const nameOf = (spelling: Spelling): string =>
  typeof spelling === 'string' ? spelling : [spelling.line, ...spelling.fields].join(', ')

interface Outcome {
  readonly name: string
  readonly statuses: readonly (number | undefined)[]
  /** The requests that reached the upstream. */
  readonly seen: readonly WireRequest[]
}

let clients = 0
/** Sends the spellings one after the other, as a new client. */
async function inTurn(spellings: readonly Spelling[], client = `client-${clients++}`): Promise<Outcome> {
  const mine = await token(client)
  const codes: (number | undefined)[] = []
  for (const spelling of spellings) {
    const fields = typeof spelling === 'string' ? [] : spelling.fields
    const head = [
      `${lineOf(spelling)} HTTP/1.1`,
      'Host: api.example.com',
      `Authorization: Bearer ${mine}`,
      ...fields,
    ]
    const { text } = await raw(
      gateway.port,
      Buffer.from(`${head.join('\r\n')}\r\nConnection: close\r\n\r\n`, 'latin1'),
    )
    codes.push(statuses(text)[0])
  }
  return {
    name: spellings.map(nameOf).join(' | '),
    statuses: codes,
    seen: back.requests.filter(({ fields }) => fields.some(([, value]) => value === `Bearer ${mine}`)),
  }
}

/** Runs several requests in turn, some at a time. */
async function all(turns: readonly (readonly Spelling[])[]): Promise<Outcome[]> {
  const waiting = [...turns]
  const outcomes: Outcome[] = []
  const worker = async (): Promise<void> => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift())
      outcomes.push(await inTurn(next))
  }
  await Promise.all(Array.from({ length: AT_ONCE }, worker))
  return outcomes
}

const bothWays = (pairs: readonly (readonly [Spelling, Spelling])[]): Promise<Outcome[]> =>
  all(
    pairs.flatMap(([one, two]) => [
      [one, two],
      [two, one],
    ]),
  )

const received = ({ line, fields }: WireRequest): Received => {
  const [method, target] = line.split(' ') as [string, string]
  return {
    method,
    target,
    field: (name) => fields.find(([one]) => one.toLowerCase().replaceAll(/[_.]/g, '-') === name)?.[1],
  }
}

/** Returns the frameworks that would sync a connection twice, with the connection. */
function twice({ seen }: Outcome): string[] {
  return Object.entries(FRAMEWORKS).flatMap(([name, framework]) => {
    const ids = seen.flatMap((request) => framework(received(request)) ?? [])
    return ids
      .filter((id, i) => ids.findIndex((other) => sameInDatabases(other, id)) !== i)
      .map((id) => `${name}: ${id}`)
  })
}

const wrong = (outcomes: readonly Outcome[], right: (outcome: Outcome) => boolean): string[] =>
  outcomes.filter((outcome) => !right(outcome)).map(({ name, statuses }) => `${name}: ${statuses.join()}`)

describe('one connection is synced once, in any spelling', () => {
  it(`${SAME.length} pairs of spellings are one sync: the second is refused, in either order`, async () => {
    const outcomes = await bothWays(SAME)
    expect(
      wrong(outcomes, ({ statuses, seen }) => statuses.join() === '200,429' && seen.length === 1),
    ).toEqual([])
  })

  it(`${REFUSED.length} spellings are refused, and no upstream sees them`, async () => {
    const outcomes = await all(REFUSED.map((alias) => [alias]))
    expect(wrong(outcomes, ({ statuses, seen }) => statuses.join() === '400' && seen.length === 0)).toEqual(
      [],
    )
  })

  it(`${ANOTHER.length} requests are different, and no framework treats one as the sync`, async () => {
    const outcomes = await bothWays(ANOTHER.map((other) => [CANONICAL, other]))
    expect(
      wrong(outcomes, ({ statuses, seen }) => statuses.join() === '200,200' && seen.length === 2),
    ).toEqual([])
    expect(outcomes.flatMap((outcome) => twice(outcome).map((what) => `${outcome.name}: ${what}`))).toEqual(
      [],
    )
  })

  it('properties of objects and parts of keys are valid names of clients and connections', async () => {
    const names = [
      ...words('__proto__ constructor toString hasOwnProperty {a} a:b * % #'),
      'a b',
      'é',
      '\u{1f4b6}',
    ]
    const paths = [
      '/sync/__proto__',
      '/sync/constructor',
      '/sync/a:b',
      '/sync/hasOwnProperty',
      '/sync/@',
      '/sync/=~',
    ]
    const outcomes = await Promise.all(names.map((client) => inTurn([...paths, ...paths], client)))
    const once = [...paths.map(() => 200), ...paths.map(() => 429)].join()
    expect(wrong(outcomes, ({ statuses }) => statuses.join() === once)).toEqual([])
  })

  it('the modelled frameworks would treat the aliases as the sync', () => {
    const fooled = (spelling: Spelling): boolean => {
      const [method, target] = lineOf(spelling).split(' ') as [string, string]
      const fields = typeof spelling === 'string' ? [] : spelling.fields.map((field) => field.split(': '))
      const field = (name: string) =>
        fields.find(([one]) => one!.toLowerCase().replaceAll(/[_.]/g, '-') === name)?.[1]
      return Object.values(FRAMEWORKS).some((framework) => {
        const id = framework({ method, target, field })
        return id !== undefined && sameInDatabases(id, 'ab:cd')
      })
    }
    expect(
      SAME.filter(([one, alias]) => one === CANONICAL && typeof alias === 'string' && !fooled(alias)).map(
        ([, alias]) => alias,
      ),
    ).toEqual(['/sync/ab:cd?_method=DELETE'])
    expect(REFUSED.filter(fooled).length).toBeGreaterThan(60)
    expect(ANOTHER.filter(fooled).length).toBeGreaterThan(10)
  })

  it('the upstream received nothing that two servers could parse differently', () => {
    expect(back.flaws).toEqual([])
  })
})
