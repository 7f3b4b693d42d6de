import { connect } from 'node:tls'
import { X509Certificate } from 'node:crypto'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { Agent, type ServerResponse } from 'node:http'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { createFolder } from '../helpers/folder.ts'
import { call, type Settings, startGateway } from '../helpers/gateway.ts'
import { makeCertificate } from '../helpers/self-signed.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const OPEN = { routes: [{ match: '/*', upstream: 'data', authenticate: 'none' }], limits: {} }
const folder = createFolder()
const held: ServerResponse[] = []
const data = await startUpstream((_, response) => void held.push(response))

/** Starts a gateway; `shown` returns the value of a series at its `/metrics`, and `shows` waits for a value. */
async function start(settings: Partial<Settings>) {
  const gateway = await startGateway({ data: data.url, ...OPEN, ...settings })
  async function shown(series: string): Promise<number | undefined> {
    const { body } = await call(gateway.adminPort, { path: '/metrics' })
    const line = body.split('\n').find((line) => line.startsWith(`${series} `))
    return line === undefined ? undefined : Number(line.slice(series.length))
  }
  const shows = (series: string, value: number | undefined) =>
    until(`${series} is ${value}`, async () => (await shown(series)) === value)
  return { port: gateway.port, shown, shows }
}

it('shows the open sockets, and the requests that wait for a socket', async () => {
  const { port, shown, shows } = await start({ upstream: { maxConnections: 2 } })
  const agent = new Agent({ keepAlive: true })
  // A single caller may use half of the sockets.
  const calls = Array.from({ length: 3 }, () => call(port, { agent }))
  await shows('sluice_upstream_queue{upstream="data"}', 2)
  await shows('sluice_upstream_sockets{upstream="data"}', 1)
  await shows('sluice_downstream_sockets', 3)
  expect(await shown('sluice_upstream_max_sockets{upstream="data"}')).toBe(2)
  expect(await shown('sluice_downstream_max_sockets')).toBe(10_000)
  for (let i = 0; i < 3; i++) {
    await until('a request is held', () => held.length > 0)
    held.pop()!.end()
  }
  await Promise.all(calls)
  await shows('sluice_upstream_queue{upstream="data"}', 0)
  agent.destroy()
  await shows('sluice_downstream_sockets', 0)
})

it('counts a socket with TLS once, and shows when its certificate expires', async () => {
  const { cert, key } = makeCertificate()
  writeFileSync(join(folder, 'cert.pem'), cert)
  writeFileSync(join(folder, 'key.pem'), key)
  const [file, keyFile] = ['cert.pem', 'key.pem'].map((name) => join(folder, name))
  const { port, shown, shows } = await start({ listen: { tls: { cert: file, key: keyFile } } })
  const socket = connect({ port, host: '127.0.0.1', rejectUnauthorized: false })
  await once(socket, 'secureConnect')
  await shows('sluice_downstream_sockets', 1)
  const expiry = Date.parse(new X509Certificate(cert).validTo) / 1000
  expect(await shown('sluice_certificate_expiry_timestamp_seconds{certificate="listen.tls.cert"}')).toBe(
    expiry,
  )
  socket.destroy()
  await shows('sluice_downstream_sockets', 0)
})
