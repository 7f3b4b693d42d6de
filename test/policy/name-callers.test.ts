import { expect, it } from 'vitest'
import { NO_FACTS } from '../../src/policy/facts.ts'
import { compileCallers } from '../../src/policy/name-callers.ts'

const CALLER = { client: 'acme', ip: '192.0.2.7' }
const LIMITS = [
  { name: 'calls', per: ['client', 'route'] },
  { name: 'addresses', per: ['ip'] },
  { name: 'more', per: ['client'] },
  { name: 'users', per: ['user'] },
  { name: 'both', per: ['client', 'ip'] },
  { name: 'all', per: ['route'] },
]

it.each([
  [['all'], []],
  [['users'], []],
  [['more', 'calls'], ['client:acme']],
  [
    ['users', 'more', 'addresses', 'calls'],
    ['client:acme', 'ip:192.0.2.7'],
  ],
  [
    ['both', 'addresses'],
    ['ip:192.0.2.7', 'client:acme ip:192.0.2.7'],
  ],
])('names whom the limits %j count, each once', (names, expected) => {
  const quotas = names.map((name) => ({ name }))
  expect(compileCallers(LIMITS)(quotas, CALLER, NO_FACTS).map(({ shown }) => shown)).toEqual(expected)
})

it('keeps a caller once for all routes', () => {
  const [one, other] = [LIMITS, LIMITS].map((limits) =>
    compileCallers(limits)([LIMITS[0]!], CALLER, NO_FACTS),
  )
  expect(one![0]).toBe(other![0])
})
