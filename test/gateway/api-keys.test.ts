import { mkdtempSync, renameSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { createKeyText, hashOfKey } from '../../src/authenticate/key/key-text.ts'
import { createFolder } from '../helpers/folder.ts'
import { call, startLogging } from '../helpers/gateway.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const folder = createFolder()
const itemOf = (id: string, key: string) => `- { id: "${id}", sha256: "${hashOfKey(key)}" }\n`

const data = await startUpstream()
const settings = {
  data: data.url,
  routes: [{ match: '/*', upstream: 'data', authenticate: 'key', limits: ['requests'] }],
  more: { keys: { file: 'keys.yaml' } },
}

describe('the file of keys', () => {
  async function reloading() {
    const own = mkdtempSync(join(folder, 'reload-'))
    const [main, keys] = [join(own, 'sluice.yaml'), join(own, 'keys.yaml')]
    const [one, other] = [createKeyText(), createKeyText()]
    writeFileSync(keys, itemOf('one', one))
    const started = await startLogging(settings, main)
    const statusOf = async (key: string) =>
      (await call(started.port, { path: '/', headers: { 'X-Api-Key': key } })).status
    return { ...started, own, keys, one, other, statusOf }
  }

  it('adds and revokes keys at a reload', async () => {
    const { keys, one, other, statusOf, running } = await reloading()
    expect([await statusOf(one), await statusOf(other)]).toEqual([200, 401])
    writeFileSync(keys, itemOf('one', other))
    await running.reload('file-change')
    expect([await statusOf(one), await statusOf(other)]).toEqual([401, 200])
    writeFileSync(keys, '[]\n')
    await running.reload('file-change')
    expect(await statusOf(other)).toBe(401)
  })

  it('follows a link that is swapped, as Kubernetes does', async () => {
    const { own, keys, one, other, statusOf, running } = await reloading()
    writeFileSync(join(own, 'v2.yaml'), itemOf('one', other))
    symlinkSync('v2.yaml', join(own, 'link'))
    renameSync(join(own, 'link'), keys)
    await running.reload('file-change')
    expect([await statusOf(one), await statusOf(other)]).toEqual([401, 200])
  })

  it.each(['', '- { id: one', '- { id: one, sha256: abc }', 'id: one'])(
    'stays in force if the new one is broken, which is logged with its place: %s',
    async (text) => {
      const { keys, one, statusOf, running, lines } = await reloading()
      writeFileSync(keys, text)
      await running.reload('file-change')
      expect(await statusOf(one)).toBe(200)
      const rejected = () => lines().find(({ msg }) => String(msg).startsWith('configuration rejected'))
      await until('it is logged', () => rejected() !== undefined)
      expect((rejected()!['problems'] as string[])[0]).toMatch(/^\/.*keys\.yaml:\d+:\d+: /)
    },
  )
})
