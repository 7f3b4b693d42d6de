import * as fc from 'fast-check'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { CHARGE_SCRIPT, REGISTER_SCRIPT } from '../../src/limit/redis/scripts.ts'
import { type RedisServer, startRedis } from '../helpers/redis.ts'
import { FULL, LONG, quickly } from '../helpers/runs.ts'
import { clocked } from '../limit/subjects.ts'
import { createRedisModel, type RedisModel } from './redis-model.ts'
import { COMMANDS, SCRIPTS } from './redis-model-cases.ts'
import { type Command, histories, START } from './redis-model-histories.ts'

let real: RedisServer
let model: RedisModel
let nowUs = START

beforeAll(async () => {
  real = await startRedis()
})
afterAll(() => real.close())
beforeEach(async () => {
  nowUs = START
  model = createRedisModel(() => nowUs)
  await real.command('FLUSHALL')
  return () => model.close()
})

const messageOf = (error: Error) => ({ error: error.message })

function modelled([name, ...args]: Command): unknown {
  try {
    return model.run(name, args)
  } catch (error) {
    return messageOf(error as Error)
  }
}

/** Runs the commands on both servers, and expects the same replies. */
async function expectSame(commands: readonly Command[]): Promise<readonly unknown[]> {
  const asked = commands.map((command) => real.command(...command).catch(messageOf))
  const replies = await Promise.all(asked)
  for (const [i, command] of commands.entries()) {
    expect({ i, command, reply: modelled(command) }).toEqual({ i, command, reply: replies[i] })
  }
  return replies
}

test('answers histories of both scripts as Redis does', async () => {
  await fc.assert(
    fc.asyncProperty(histories, async (history) => {
      await real.command('FLUSHALL')
      model.restart(undefined, { keepScripts: true })
      await expectSame(history)
    }),
    { numRuns: LONG ? 200 : quickly(12, 30), seed: 20_261_123 },
  )
})

test.runIf(FULL)('answers a full log above and below 1000 calls per window as Redis does', async () => {
  const commands: Command[] = []
  for (let i = 0; i < 3000; i++) {
    const size = i < 1200 ? 1000 : i < 2400 ? 2500 : 40
    const now = START + 50_000 * i
    commands.push(['SET', '{1}clock', now])
    commands.push(['EVAL', clocked(CHARGE_SCRIPT), 1, '{1}a', now, 0, 1, `1 ${size} 60000000 0`])
  }
  await expectSame([...commands, ['GET', '{1}a']])
})

test('answers commands as Redis does', async () => {
  await expectSame(COMMANDS)
})

test('runs scripts and reports their errors as Redis does', async () => {
  await expectSame(SCRIPTS.map((text) => ['EVAL', text, 2, 'key 1', 'key\n2', 'one', 'zwei\\n', 'drü\n']))
})

test('forgets scripts, and refuses unknown ones as Redis does', async () => {
  const sha = 'e0e1f9fabfc9d4800c877a703b823ac0578ff8db'
  const ask: Command = ['EVALSHA', sha, 0]
  const said = await expectSame([ask, ['SCRIPT', 'LOAD', 'return 1'], ask, ['SCRIPT', 'FLUSH'], ask])
  expect(said[4]).toEqual({ error: 'NOSCRIPT No matching script. Please use EVAL.' })
  await expectSame([['EVAL', 'return 1', 0], ask, ['EVALSHA', sha.toUpperCase(), 0], ['EVALSHA', 'abc', 0]])
  model.flushScripts()
  expect(modelled(ask)).toEqual(said[4])
})

const charging = (key: string): Command => ['EVAL', CHARGE_SCRIPT, 1, key, 9e15, 0, 1, '1 5 60000000 0']
const REFUSED: readonly Command[] = [
  charging('new'),
  ['EVAL', REGISTER_SCRIPT, 2, 'zset', 'since', 'id', 10_000],
  ['EVAL', "redis.call('UNLINK', 'none') return redis.call('SET', 'a', 1)", 0],
  ['EVAL', "return redis.pcall('SET', 'a', 1).err", 0],
  ...(['SET a 1', 'GET a', 'UNLINK a', 'ZREM zset m', 'ZADD zset 1 n', 'PEXPIRE zset 100000'] as const).map(
    (words) => words.split(' ') as unknown as Command,
  ),
]

test('refuses writes as a Redis with full memory does', async () => {
  await expectSame([['ZADD', 'zset', 1, 'm']])
  await real.command('CONFIG', 'SET', 'maxmemory', 1)
  model.isFull = true
  try {
    const [said] = await expectSame(REFUSED)
    expect(said).toMatchObject({ error: expect.stringMatching(/^OOM command not allowed/) })
  } finally {
    await real.command('CONFIG', 'SET', 'maxmemory', 0)
  }
})

test('refuses writes as a replica does', async () => {
  await expectSame([['ZADD', 'zset', 1, 'm']])
  await real.command('REPLICAOF', '127.0.0.1', 1)
  model.isReadOnly = true
  try {
    const [said] = await expectSame(REFUSED)
    expect(said).toMatchObject({ error: expect.stringMatching(/^READONLY You can't write/) })
  } finally {
    await real.command('REPLICAOF', 'NO', 'ONE')
  }
})

test('lets keys expire by its own clock as Redis does', async () => {
  const write: Command[] = [
    ['SET', 'short', 'x', 'PX', 400],
    ['SET', 'kept', 'x', 'PX', 400],
    ['SET', 'kept', 'y', 'KEEPTTL'],
    ['SET', 'lasting', 'x', 'PX', 400],
    ['SET', 'lasting', 'x'],
    ['ZADD', 'zset', 1, 'm'],
    ['PEXPIRE', 'zset', 400],
    ['SET', 'at once', 'x'],
    ['PEXPIRE', 'at once', 0],
    ['EVAL', "redis.call('SET', 'scripted', 'x', 'PX', 400) redis.call('SETRANGE', 'scripted', 1, 'y')", 0],
  ]
  const read: Command[] = ['short', 'kept', 'lasting', 'zset', 'at once', 'scripted'].map((key) => [
    'EXISTS',
    key,
  ])
  await expectSame(write)
  await expectSame(read)
  await new Promise((resolve) => setTimeout(resolve, 600))
  nowUs += 600_000
  expect(await expectSame(read)).toEqual([0, 0, 1, 0, 0, 0])
})

test('keeps a key until its last millisecond has passed', () => {
  model.run('SET', ['key', 'x', 'PX', 1000])
  nowUs += 1_000_999
  expect(model.run('GET', ['key'])).toBe('x')
  nowUs -= 5_000_000
  expect(model.run('PTTL', ['key'])).toBe(5000)
  nowUs += 5_000_001
  expect(model.run('GET', ['key'])).toBeNull()
  nowUs -= 5_000_000
  expect(model.run('GET', ['key'])).toBeNull()
})

test('moves data between servers and through restarts', () => {
  const other = createRedisModel(() => nowUs)
  model.run(charging('{1}a')[0], charging('{1}a').slice(1))
  model.run('HSET', ['hash', 'a', '1'])
  const before = model.snapshot()
  model.run('HSET', ['hash', 'a', '2'])
  other.restart(before)
  other.run('HSET', ['hash', 'b', '3'])
  expect(other.run('HGETALL', ['hash'])).toEqual(['a', '1', 'b', '3'])
  expect(model.run('HGETALL', ['hash'])).toEqual(['a', '2'])
  expect(other.run('GET', ['{1}a'])).toBe(model.run('GET', ['{1}a']))
  model.run('EVAL', ['return 1', 0])
  model.restart(before, { keepScripts: true })
  expect(model.run('EVALSHA', ['e0e1f9fabfc9d4800c877a703b823ac0578ff8db', 0])).toBe(1)
  expect(model.run('HGETALL', ['hash'])).toEqual(['a', '1'])
  before.release()
  model.restart()
  expect(model.run('DBSIZE', [])).toBe(0)
  expect(() => model.run('EVALSHA', ['e0e1f9fabfc9d4800c877a703b823ac0578ff8db', 0])).toThrow('NOSCRIPT')
  other.close()
})
