import { expect, it } from 'vitest'
import { call, startLogging, token } from '../../helpers/gateway.ts'
import { startRedis } from '../../helpers/redis.ts'
import { startUpstream } from '../../helpers/upstream.ts'
import { until } from '../../helpers/wait.ts'

const [data, redis] = await Promise.all([startUpstream(), startRedis()])
const changeTo = async (password: string): Promise<void> => {
  await redis.command('ACL', 'SETUSER', 'sluice', 'on', 'resetpass', `>${password}`, '~*', '+@all')
  await redis.command('CLIENT', 'KILL', 'USER', 'sluice')
}
await changeTo('first')
const store = { redis: { url: redis.url, username: 'sluice', password: 'first' }, prefix: 'p' }
const gateway = await startLogging({ data: data.url, store })

it('reports a password that is changed later once, with the error of a wrong password at the start', async () => {
  const logged = (level: string, text: string) =>
    gateway.lines().filter((line) => line['level'] === level && String(line['msg']).includes(text))
  const mode = async () => {
    await call(gateway.port, { token: await token('acme') })
    return gateway.lines().findLast(({ msg }) => msg === 'request')?.['mode']
  }
  for (const times of [1, 2]) {
    await until('Redis decides', async () => (await mode()) === 'store')
    await changeTo('second')
    await until('it is reported', () => logged('error', 'refuses the user name or password').length === times)
    await until('the fallback decides', async () => (await mode()) === 'local')
    await changeTo('first')
    await until('Redis decides again', () => logged('info', 'Redis available again').length === times)
    expect(logged('error', '')).toHaveLength(times)
  }
  expect(gateway.stdout()).not.toMatch(/first|second/)
})
