import { afterAll, beforeAll, expect, it, vi } from 'vitest'
import { timeFault } from '../../../src/authenticate/token/claims.ts'

const NOW = 1_800_000_000
beforeAll(() => void vi.useFakeTimers({ now: NOW * 1000 }))
afterAll(() => void vi.useRealTimers())

it.each<[object, string | undefined]>([
  [{}, undefined],
  [{ exp: NOW - 9 }, undefined],
  [{ exp: NOW - 10 }, 'expired'],
  [{ nbf: NOW + 10 }, undefined],
  [{ nbf: NOW + 10.001 }, 'is not valid yet'],
  [{ iat: NOW + 5 }, undefined],
  [{ iat: NOW + 5.001 }, 'has an iat in the future'],
  [{ exp: '1' }, 'has an exp, nbf or iat that is not a number'],
])('a token with %j, with leeways of 10 s and of 5 s for iat: %s', (claims, fault) => {
  expect(timeFault(claims as Parameters<typeof timeFault>[0], 10_000, 5000)).toBe(fault)
})
