import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { rmSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeEach, describe, expect, it } from 'vitest'
import { createOverridesFile } from '../../src/process/overrides-file.ts'
import type { Log } from '../../src/observe/log.ts'
import { sluice } from '../commands/run.ts'
import { createFolder } from '../helpers/folder.ts'
import { call, type LoggingGateway, startGateway, startLogging, token, yaml } from '../helpers/gateway.ts'
import { serving } from '../helpers/process.ts'
import { startRedis } from '../helpers/redis.ts'
import { WORKERS } from '../helpers/runs.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

let folder: string
let file: string
beforeEach(() => {
  folder = createFolder()
  file = join(folder, 'overrides.json')
})

describe('a gateway that starts while Redis is out of reach', async () => {
  const data = await startUpstream()
  const redis = await startRedis()
  const mine = await token('acme')
  beforeEach(async () => {
    await redis.kill()
    await redis.start()
  })

  const settings = (more: object = {}, prefix = 'sluice') => ({
    data: data.url,
    store: { redis: { url: redis.url }, prefix, instances: 1, ...more },
    limit: 10,
  })
  const withFile = (more: object = {}) => settings({ overridesFile: file, ...more })
  const block = async (adminPort: number, limit = '0') => {
    const admin = `http://127.0.0.1:${adminPort}`
    const args = ['limits', 'set', 'acme', `requests=${limit}`, '--permanent', '--admin', admin]
    expect(await sluice(args)).toMatchObject({ code: 0 })
  }
  const isWritten = (text = '"limit\\":0') =>
    until('the file is written', () => existsSync(file) && readFileSync(file, 'utf8').includes(text))
  const status = async ({ port }: { readonly port: number }) => (await call(port, { token: mine })).status
  const ready = async ({ adminPort }: { readonly adminPort: number }) =>
    await call(adminPort, { path: '/readyz' })
  const known = async ({ adminPort }: { readonly adminPort: number }) =>
    /^sluice_overrides_known (\d)$/m.exec((await call(adminPort, { path: '/metrics' })).body)?.[1]
  const about = ({ lines }: LoggingGateway) =>
    lines().filter(({ msg }) => /overrides (?:unknown|read|file)/.test(String(msg)))

  it('has the overrides of the file in force until Redis answers; without the file, it warns and admits', async () => {
    const old = await startGateway(withFile())
    await block(old.adminPort)
    await isWritten()
    await redis.kill()
    const [kept, other, without, required] = await Promise.all([
      startLogging(withFile()),
      startLogging(settings({ overridesFile: file }, 'another')),
      startLogging(settings()),
      startLogging(withFile({ overrides: 'required' })),
    ])
    expect(await Promise.all([old, kept, other, without].map(status))).toEqual([429, 429, 200, 200])
    expect(await Promise.all([old, kept, other, without].map(known))).toEqual(['1', '1', '0', '0'])
    const written = statSync(file).mtime.toISOString()
    expect(about(kept)).toMatchObject([{ level: 'info', overrides: 1, written }])
    const unknown = { level: 'warn', msg: 'limit overrides unknown; starting without them' }
    const cause = 'holds the overrides of another store.prefix'
    expect(about(other)).toMatchObject([
      { level: 'warn', msg: 'overrides file ignored', file, cause },
      unknown,
    ])
    expect(about(without)).toMatchObject([unknown])
    expect((await Promise.all([kept, without].map(ready))).map(({ status }) => status)).toEqual([200, 200])
    const reason = 'not ready: the overrides are not read from Redis yet, and store.overrides is required\n'
    expect(await ready(required)).toMatchObject({ status: 503, body: reason })
    expect(await status(required)).toBe(429)

    await redis.start()
    await until('all gateways of the prefix have it', async () => (await status(without)) === 429)
    await until('it is ready', async () => (await ready(required)).status === 200)
    await until('the overrides of the other prefix are read', async () => (await known(other)) === '1')
  })

  it('drops the overrides of the file that were removed meanwhile as soon as it reads Redis, also from the file', async () => {
    const first = await startGateway(withFile())
    await block(first.adminPort)
    await isWritten()
    await first.close()
    await redis.kill()
    const kept = await startGateway(withFile())
    expect(await status(kept)).toBe(429)
    // It returns empty, and no gateway has read the overrides from it.
    await redis.start()
    await until('the block has ended', async () => (await status(kept)) === 200)
    await isWritten('"fields":{}')
  })

  it('has no override of the file in force that has ended', async () => {
    const ended = JSON.stringify({ limit: 0, setAt: 1, untilAt: 2 })
    const fields = { '["acme","requests"]': ended, version: '1 x' }
    writeFileSync(file, JSON.stringify({ format: 1, prefix: 'sluice', fields }))
    await redis.kill()
    const gateway = await startLogging(withFile())
    expect(await status(gateway)).toBe(200)
    expect(about(gateway)).toMatchObject([{ level: 'info', overrides: 0 }])
  })

  it('warns of damaged overrides of the file, and has the others in force', async () => {
    const fields = { '["acme","requests"]': '{"limit":0,"setAt":1}', other: '{"limit":0,"setAt":1}' }
    writeFileSync(file, JSON.stringify({ format: 1, prefix: 'sluice', fields }))
    await redis.kill()
    const gateway = await startLogging(withFile())
    expect(await status(gateway)).toBe(429)
    const damaged = gateway.lines().filter(({ msg }) => msg === 'damaged limit overrides ignored')
    expect(damaged).toMatchObject([{ level: 'warn', fields: 1 }])
  })

  it('has the overrides of the file in force in each worker, and no worker is ready if they are required from Redis', async () => {
    const first = await startGateway(withFile())
    await block(first.adminPort)
    await isWritten()
    await first.close()
    await redis.kill()
    const gateway = await serving(yaml(withFile({ overrides: 'required' })), ['--workers', String(WORKERS)])
    for (let i = 0; i < 4; i++) {
      const got = await call(gateway.port, { token: mine, headers: { Connection: 'close' } })
      expect(got.status).toBe(429)
    }
    expect(await known(gateway)).toBe('1')
    expect(await ready(gateway)).toMatchObject({ status: 503 })
    await redis.start()
    await until('they are ready', async () => (await ready(gateway)).status === 200)
  })
})

/** Creates the file of a process, with the log of its warnings. */
function open(prefix = 'sluice', retryMs = 60_000) {
  const lines: [string, unknown][] = []
  const write = (level: string) => (fields: { readonly cause?: string }, words: string) =>
    void lines.push([`${level}: ${words}`, fields.cause])
  const log = { info: write('info'), warn: write('warn') } as unknown as Log
  return { lines, ...createOverridesFile(file, prefix, log, retryMs) }
}

const FIELDS = { '["acme","requests"]': '{"limit":0,"setAt":1}', version: '1 x' }
const text = (more: object = {}) => JSON.stringify({ format: 1, prefix: 'sluice', fields: FIELDS, ...more })
const IGNORED = 'warn: overrides file ignored'

describe('the file of the overrides', () => {
  it('is written at once and only for its user, and is read with the instant of its writing', async () => {
    const { save, close, read, lines } = open()
    save(FIELDS)
    await close()
    expect([readFileSync(file, 'utf8'), statSync(file).mode & 0o777]).toEqual([text(), 0o600])
    expect(readdirSync(folder)).toEqual(['overrides.json'])
    expect(await read()).toEqual({ fields: FIELDS, written: statSync(file).mtime.toISOString() })
    expect(lines).toEqual([])
  })

  it('keeps all of many overrides, and only the latest while it is formatted', async () => {
    const { save, close, read } = open('with:"quotes"')
    const many = (length: number) =>
      Object.fromEntries(Array.from({ length }, (_, i) => [`["client-${i}","requests"]`, '{"limit":0}']))
    for (const count of [500, 501, 1200]) {
      save(many(900))
      save(many(count))
      await close()
      expect((await read())?.fields).toEqual(many(count))
    }
  })

  it('is not written again with the same content, and ends with the latest of several', async () => {
    const { save, close } = open()
    writeFileSync(file, text())
    const { ino } = statSync(file)
    save(FIELDS)
    await close()
    expect(statSync(file).ino).toBe(ino)
    for (const version of ['2 x', '3 x', '4 x']) save({ version })
    await close()
    expect(readFileSync(file, 'utf8')).toBe(text({ fields: { version: '4 x' } }))
  })

  it('is shared by several processes without a mixture of their texts', async () => {
    const all = Array.from({ length: 8 }, (_, i) => ({ ...open(), fields: { ...FIELDS, version: `${i} x` } }))
    for (const { save, fields } of all) save(fields)
    await Promise.all(all.map(({ close }) => close()))
    const kept = await open().read()
    expect(all.map(({ fields }) => fields)).toContainEqual(kept?.fields)
    expect(all.flatMap(({ lines }) => lines)).toEqual([])
    expect(readdirSync(folder)).toEqual(['overrides.json'])
  })

  it('is not a fault if it does not exist', async () => {
    const { read, lines } = open()
    expect([await read(), lines]).toEqual([undefined, []])
  })

  it.each<[string, () => void, string]>([
    ['empty', () => writeFileSync(file, ''), 'does not hold overrides in format 1'],
    ['cut', () => writeFileSync(file, text().slice(0, -9)), 'does not hold overrides in format 1'],
    ['another JSON', () => writeFileSync(file, '[1]'), 'does not hold overrides in format 1'],
    [
      'not UTF-8',
      () => writeFileSync(file, Buffer.from([0xff, 0xfe])),
      'does not hold overrides in format 1',
    ],
    [
      'of another format',
      () => writeFileSync(file, text({ format: 2 })),
      'does not hold overrides in format 1',
    ],
    ['a list', () => writeFileSync(file, text({ fields: [] })), 'does not hold overrides in format 1'],
    [
      'of another prefix',
      () => writeFileSync(file, text({ prefix: 'p' })),
      'holds the overrides of another store.prefix',
    ],
    [
      'not of texts',
      () => writeFileSync(file, text({ fields: { a: 1 } })),
      'holds a value that is not a text',
    ],
    ['a folder', () => mkdirSync(file), 'is not a regular file'],
    ['a named pipe', () => void execFileSync('mkfifo', [file]), 'is not a regular file'],
    ['a link to itself', () => symlinkSync(file, file), 'ELOOP'],
    [
      'too large',
      () => {
        writeFileSync(file, '')
        truncateSync(file, 64 * 1024 ** 2 + 1)
      },
      'is larger than 67108864 bytes',
    ],
  ])(
    'is ignored with a warning if it is %s, and is replaced by the next write unless it is a folder',
    async (what, make, cause) => {
      make()
      const { read, save, close, lines } = open()
      expect(await read()).toBeUndefined()
      expect(lines).toEqual([[IGNORED, expect.stringContaining(cause)]])
      save(FIELDS)
      await close()
      if (what === 'a folder') expect(readdirSync(folder)).toEqual(['overrides.json'])
      else expect(readFileSync(file, 'utf8')).toBe(text())
    },
  )

  it('that cannot be written is warned of once, and written as soon as it can be', async () => {
    rmSync(folder, { recursive: true })
    const { save, close, lines } = open('sluice', 10)
    for (const version of ['1 x', '2 x']) {
      save({ version })
      await close()
    }
    save(FIELDS)
    expect(lines).toEqual([['warn: overrides file not written; retrying', expect.stringContaining('ENOENT')]])
    mkdirSync(folder)
    await until('it is written', () => lines.length === 2)
    expect([lines[1]![0], readFileSync(file, 'utf8')]).toEqual(['info: overrides file written again', text()])
    await close()
  })

  it('that is too large is not written', async () => {
    const { save, close, lines } = open()
    save({ a: 'x'.repeat(64 * 1024 ** 2) })
    await close()
    expect([lines.length, readdirSync(folder)]).toEqual([1, []])
  })
})
