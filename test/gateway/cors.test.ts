import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { createFolder } from '../helpers/folder.ts'
import { call, startGateway, yaml } from '../helpers/gateway.ts'
import { startUpstream } from '../helpers/upstream.ts'

/** The rest of `scenarios/cors.yaml`. */

const APP = 'https://app.example.com'

it('a reload applies the new origins', async () => {
  const data = await startUpstream()
  const routes = [{ match: '/*', upstream: 'data', authenticate: 'none' }]
  const settings = (origin: string) => ({ data: data.url, routes, more: { cors: { origins: [origin] } } })
  const file = join(createFolder(), 'sluice.yaml')
  const { port, running } = await startGateway(settings('https://evil.example'), file)
  const allowed = async () =>
    (await call(port, { path: '/a', headers: { Origin: APP } })).headers['access-control-allow-origin']
  expect(await allowed()).toBeUndefined()
  writeFileSync(file, yaml(settings(APP)))
  await running.reload('file-change')
  expect(await allowed()).toBe(APP)
})
