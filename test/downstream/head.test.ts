import { expect, it } from 'vitest'
import { contradictingOverride, readHead } from '../../src/downstream/head.ts'

it('the raw head contains every Host, Authorization and DPoP, in any case', () => {
  const raw = ['Host', 'a', 'HOST', 'b', 'Authorization', '1', 'DPoP', 'x', 'aUTHORIZATION', '2']
  raw.push('dpop', 'y', 'x', 'z', 'Hosts', 'c', 'Depp', 'd', 'Authorisations', '3')
  expect(readHead(raw)).toEqual({
    hosts: ['a', 'b'],
    authorization: ['1', '2'],
    proofs: ['x', 'y'],
    overrides: [],
  })
})

it.each([
  [['X-HTTP-Method', 'PUT'], 'x-http-method'],
  [['x-method-override', 'POST', 'X-Method-Override', 'delete'], 'x-method-override'],
  [['X-HTTP-Method-Override', 'post, , PATCH'], 'x-http-method-override'],
  [['X-HTTP-Method-Override', ' post,', 'X-HTTP-Method', ''], undefined],
  [['Authorisation-', 'PUT', 'X-Method-Overridden', 'PUT'], undefined],
])('of a POST with %j, %s asks for another method', (raw, field) => {
  expect(contradictingOverride(readHead(raw), 'POST')).toBe(field)
})
