import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'
import { call, token, yaml } from '../helpers/gateway.ts'
import { serving } from '../helpers/process.ts'
import { sharedRedis } from '../helpers/shared-redis.ts'
import { startUpstream } from '../helpers/upstream.ts'

const SKEWED_CLOCK = fileURLToPath(new URL('../helpers/skewed-clock.mjs', import.meta.url))

it('two gateways on one Redis together admit 1000, although the clock of one differs by a second', async () => {
  const [redis, data] = await Promise.all([sharedRedis(), startUpstream()])
  // Long timeouts, so that a busy machine does not cause an outage.
  const store = { redis: { url: redis.url }, prefix: 'skewed-clock', timeout: '10s' }
  const settings = yaml({ data: data.url, store, timeout: '20s' })
  const [one, two] = await Promise.all([
    serving(settings),
    serving(settings, [], { NODE_OPTIONS: `--import ${SKEWED_CLOCK}`, SKEW_MS: '1000' }),
  ])
  const mine = await token('acme')
  const answers = await Promise.all(
    Array.from({ length: 1300 }, (_, i) => call((i % 2 === 0 ? one : two).port, { token: mine })),
  )
  expect(answers.filter(({ status }) => status === 200)).toHaveLength(1000)
  const resets = answers
    .filter(({ status }) => status === 429)
    .map(({ headers }) => headers['x-ratelimit-reset'])
  // The instant is of Redis's clock at both gateways.
  expect(new Set(resets).size).toBe(1)
})
