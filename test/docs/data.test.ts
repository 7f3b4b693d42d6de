import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { describe, expect, it } from 'vitest'
import { sluice } from '../commands/run.ts'
import { call, startLogging, textOf, token, TOKENS, written } from '../helpers/gateway.ts'
import { startRedis } from '../helpers/redis.ts'
import { fileText } from '../helpers/repository.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const run = promisify(execFile)
const doc = fileText('docs/data.md')
const blocks = [...doc.matchAll(/^```(\w+)\n([\s\S]*?)^```$/gm)].map(([, kind, text]) => ({
  kind,
  text: text!,
}))
const settings = blocks.find(({ kind }) => kind === 'yaml')
const [commands, script] = blocks.filter(({ kind }) => kind === 'sh')

describe('docs/data.md', () => {
  it('erases a person by its commands, under its settings', async () => {
    const redis = await startRedis({ tcp: true })
    const data = await startUpstream()
    const own = `listen: { host: 127.0.0.1, port: 0 }
admin: { port: 0 }
store: { redis: { url: "${redis.url}" } }
upstreams: { data: { url: "${data.url}" } }
${textOf({ tokens: TOKENS })}
`
    const gateway = await startLogging(
      written(own + settings!.text.replaceAll(/^(?:store|upstreams|tokens):.*\n/gm, '')),
    )
    const consent = crypto.randomUUID()
    const callAs = async (sub: string, account: string) => {
      const mine = await token('acme', { sub, consent_id: consent })
      return (await call(gateway.port, { path: `/accounts/${account}`, token: mine })).status
    }
    expect(await callAs('maria.musterfrau', 'DE89370400440532013000')).toBe(200)
    expect(await callAs('erika', 'DE00370400440532013000')).toBe(200)
    const keys = async () =>
      ((await redis.command('KEYS', 'sluice:*')) as string[]).filter((key) => !key.includes('~'))
    expect(await keys()).toHaveLength(5)

    const admin = ['--admin', `http://127.0.0.1:${gateway.adminPort}`]
    await sluice(['limits', 'set', 'user:maria.musterfrau', 'payments=1', ...admin])
    const lines = commands!.text.split('\n').filter(Boolean)
    expect(lines).toHaveLength(3)
    for (const line of lines) {
      const [, ...words] = line.replace(/ +#.*/, '').split(/ +/)
      expect(await sluice([...words, ...admin])).toMatchObject({ code: 0 })
    }
    expect(await keys()).toHaveLength(4)
    expect((await sluice(['limits', 'overrides', ...admin])).stdout).toBe('There are no overrides.\n')

    await run('sh', ['-c', script!.text], { env: { ...process.env, REDIS_URL: redis.url } })
    expect(await keys()).toHaveLength(3)
    const logged = () => gateway.lines().filter(({ msg }) => msg === 'request')
    await until('both calls are logged', () => logged().length === 2)
    expect(logged()[0]).toMatchObject({ path: '/accounts/:account', ip: '127.0.0.0/24' })
  })
})
