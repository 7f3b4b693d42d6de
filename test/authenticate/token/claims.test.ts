import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createQualifier } from '../../../src/authenticate/token/bearer.ts'

const A = 'https://a.example.com'
const B = 'https://b.example.com/oidc'
const C = 'https://c.example.com/@https://b.example.com/oidc'

describe('the names of clients and users', () => {
  it('the names of clients and users are their ids if there is one issuer', () => {
    const nameOf = createQualifier([A])
    for (const id of ['acme', 'acme@', `acme@${A}`]) expect([nameOf(id, A), nameOf(id)]).toEqual([id, id])
  })

  it('the names of clients and users are the ids of the first of several issuers, and name the issuer of others', () => {
    const nameOf = createQualifier([A, B, C])
    expect(nameOf('acme')).toBe('acme')
    expect(nameOf('joe@example.com', A)).toBe('joe@example.com')
    expect(nameOf('acme', B)).toBe(`acme@${B}`)
    expect(nameOf('acme', C)).toBe('acme@https://c.example.com/%40https://b.example.com/oidc')
  })

  it('the names of clients and users of the first issuer name it if they would look like others', () => {
    expect(createQualifier([A, B])(`acme@${B}`, A)).toBe(`acme@${B}@${A}`)
  })

  it('the names of clients and users are never ambiguous', () => {
    const issuers = [A, B, C]
    const nameOf = createQualifier(issuers)
    const part = fc.constantFrom('acme', '@', '%40', ...issuers, ...issuers.map((one) => `@${one}`), '')
    const id = fc.array(part, { minLength: 1, maxLength: 4 }).map((parts) => parts.join(''))
    const who = fc.tuple(id, fc.constantFrom(...issuers))
    fc.assert(
      fc.property(who, who, (one, other) => {
        expect(nameOf(...one) === nameOf(...other)).toBe(one.join('\n') === other.join('\n'))
      }),
      { numRuns: 5000 },
    )
  })
})
