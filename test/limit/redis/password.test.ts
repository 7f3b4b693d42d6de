import { afterAll, beforeAll, expect, it } from 'vitest'
import { call, token, yaml } from '../../helpers/gateway.ts'
import { serving, type ServingProcess } from '../../helpers/process.ts'
import { type RedisServer, startRedis } from '../../helpers/redis.ts'
import { startUpstream, type TestUpstream } from '../../helpers/upstream.ts'
import { until } from '../../helpers/wait.ts'

let data: TestUpstream
let redis: RedisServer
let gateway: ServingProcess
const changeTo = async (password: string): Promise<void> => {
  await redis.command('ACL', 'SETUSER', 'sluice', 'on', 'resetpass', `>${password}`, '~*', '+@all')
  await redis.command('CLIENT', 'KILL', 'USER', 'sluice')
}
beforeAll(async () => {
  data = await startUpstream()
  redis = await startRedis()
  await changeTo('first')
  const store = `{ redis: { url: "${redis.url}", username: sluice, password: first }, prefix: p }`
  gateway = await serving(yaml({ data: data.url, store }))
})
afterAll(async () => {
  gateway.kill()
  await redis.close()
  await data.close()
})

it('a password that is changed later is told once as an error, in the words of a wrong one at the start', async () => {
  const told = (level: string, words: string) =>
    gateway.lines().filter((line) => line['level'] === level && String(line['msg']).includes(words))
  const mode = async () => {
    await call(gateway.port, { token: await token('acme') })
    return gateway.lines().findLast(({ msg }) => msg === 'request')?.['mode']
  }
  for (const times of [1, 2]) {
    await until('Redis decides', async () => (await mode()) === 'store')
    await changeTo('second')
    await until('it is told', () => told('error', 'refuses the user name or password').length === times)
    await until('it is tried again', async () => (await mode()) === 'local')
    await changeTo('first')
    await until('Redis decides again', () => told('info', 'Redis available again').length === times)
    expect(told('error', '')).toHaveLength(times)
  }
  expect(gateway.stdout()).not.toMatch(/first|second/)
})
