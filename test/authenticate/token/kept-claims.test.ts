import { describe, expect, it } from 'vitest'
import { startIssuer } from '../../helpers/issuer.ts'
import { createServing, keysOf, trust } from '../../helpers/trust.ts'

const issuer = await startIssuer({ algorithms: ['ES256'] })

describe('the claims of a token', () => {
  it('the claims of a token are kept as limits compare them, only those that limits read, and the same from the cache', async () => {
    const names = ['text', 'long', 'number', 'flag', 'list', 'object', 'null', 'absent', 'constructor']
    const serve = createServing(trust(issuer, await keysOf(issuer), { keeps: names }))
    const token = issuer.token({
      ...{ text: 'a', long: 'x'.repeat(256), number: 4, flag: false, null: null, other: 'secret' },
      ...{ list: ['a', 1, { b: 2 }, null, 'x'.repeat(256)], object: { a: 1 } },
    })
    for (let i = 0; i < 3; i++)
      expect(await serve([`Bearer ${token}`])).toMatchObject({
        claims: { text: 'a', long: [], number: 4, flag: false, list: ['a', 1], object: [] },
      })
    const { claims } = (await serve([`Bearer ${token}`])) as { readonly claims: object }
    expect(Object.keys(claims)).toEqual(['text', 'long', 'number', 'flag', 'list', 'object'])
  })

  it('the claims of a token are not kept if no limit reads them', async () => {
    const serve = createServing(trust(issuer, await keysOf(issuer)))
    expect(await serve([`Bearer ${issuer.token({ text: 'a' })}`])).toMatchObject({ claims: undefined })
  })
})
