import { expect, it } from 'vitest'
import { readHead } from '../../src/downstream/head.ts'

it('the raw head contains every Host, Authorization and DPoP, in any case', () => {
  const raw = ['Host', 'a', 'HOST', 'b', 'Authorization', '1', 'DPoP', 'x', 'aUTHORIZATION', '2']
  raw.push('dpop', 'y', 'x', 'z', 'Hosts', 'c', 'Depp', 'd', 'Authorisations', '3')
  expect(readHead(raw)).toEqual({ hosts: ['a', 'b'], authorization: ['1', '2'], proofs: ['x', 'y'] })
})
