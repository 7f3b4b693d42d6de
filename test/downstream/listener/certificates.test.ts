import { once } from 'node:events'
import { mkdirSync, renameSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { connect, type TLSSocket } from 'node:tls'
import { beforeEach, expect, it } from 'vitest'
import { closeLater } from '../../helpers/closing.ts'
import { createFolder } from '../../helpers/folder.ts'
import { makeCertificate, type TestCertificate } from '../../helpers/self-signed.ts'
import { call, yaml } from '../../helpers/gateway.ts'
import { serving, type ServingProcess } from '../../helpers/process.ts'
import { askOver } from '../../helpers/raw.ts'
import { startUpstream } from '../../helpers/upstream.ts'
import { until } from '../../helpers/wait.ts'

let folder: string
let gateway: ServingProcess | undefined
const data = await startUpstream()
beforeEach(() => {
  folder = createFolder()
})

/** Puts files in place at once, as a mounted Secret does. */
let versions = 0
function mount({ cert }: TestCertificate, { key }: TestCertificate): void {
  const name = `..${++versions}`
  mkdirSync(join(folder, name))
  writeFileSync(join(folder, name, 'tls.crt'), cert)
  writeFileSync(join(folder, name, 'tls.key'), key)
  symlinkSync(name, join(folder, '..tmp'))
  renameSync(join(folder, '..tmp'), join(folder, '..data'))
}

async function connected(session?: Buffer): Promise<TLSSocket> {
  const socket = connect({
    port: gateway!.port,
    host: '127.0.0.1',
    rejectUnauthorized: false,
    ...(session && { session }),
  })
  closeLater(() => socket.destroy())
  socket.on('error', () => {})
  await once(socket, 'secureConnect')
  return socket
}
async function shown(): Promise<string> {
  const socket = await connected()
  const { fingerprint256 } = socket.getPeerCertificate()
  socket.destroy()
  return Buffer.from(fingerprint256.replaceAll(':', ''), 'hex').toString('base64url')
}
const logged = (words: string) =>
  gateway!.lines().filter(({ msg }) => typeof msg === 'string' && msg.includes(words))
/** Returns the expiry of the listener's certificate, from the metrics. */
const expiry = async (): Promise<number> =>
  Number(
    /^sluice_certificate_expiry_timestamp_seconds\{certificate="listen\.tls\.cert"\} (\d+)$/m.exec(
      (await call(gateway!.adminPort, { path: '/metrics' })).body,
    )?.[1],
  )
const succeeded = async (): Promise<string | undefined> =>
  /^sluice_config_last_reload_successful (\d)$/m.exec(
    (await call(gateway!.adminPort, { path: '/metrics' })).body,
  )?.[1]

it('new connections get a renewed certificate, open ones continue, and an invalid pair changes nothing', async () => {
  const [first, second, third] = [
    makeCertificate(),
    makeCertificate('localhost', 1e7),
    makeCertificate(),
  ] as const
  mount(first, first)
  for (const name of ['tls.crt', 'tls.key']) symlinkSync(`..data/${name}`, join(folder, name))
  const file = join(folder, 'sluice.yaml')
  const text = yaml({ data: data.url, listen: { tls: { cert: 'tls.crt', key: 'tls.key' } } })
  writeFileSync(file, text)
  gateway = await serving({ file })
  expect(await shown()).toBe(first.thumbprint)
  const expiryBefore = await expiry()
  await call(gateway.port, { path: '/' }).catch(() => {})
  const plain = { ip: '127.0.0.1', error: 'ERR_SSL_HTTP_REQUEST' }
  await until('the failed handshake is logged', () =>
    logged('handshake failed').some(({ error }) => error === plain.error),
  )
  expect(logged('handshake failed').find(({ error }) => error === plain.error)).toMatchObject(plain)
  const open = await connected()
  expect((await askOver(open)).status).toBe(200)
  const session = open.getSession()!
  expect((await connected(session)).isSessionReused()).toBe(true)

  mount(second, second)
  await until('the certificate is renewed', () => logged('TLS certificate renewed').length === 1)
  expect(await shown()).toBe(second.thumbprint)
  expect(await expiry()).toBeLessThan(expiryBefore - 7e4)
  expect((await askOver(open)).status).toBe(200)
  // Sessions of the previous certificate are not resumed.
  expect((await connected(session)).isSessionReused()).toBe(false)

  mount(third, second)
  await until('the invalid pair is logged', () => logged('configuration rejected').length === 1)
  expect(logged('configuration rejected')[0]).toMatchObject({
    level: 'error',
    problems: [expect.stringMatching(/listen\.tls\.key: is not the key of the certificate in tls\.crt/)],
  })
  await until('the metric', async () => (await succeeded()) === '0')
  expect(await shown()).toBe(second.thumbprint)
  expect((await askOver(open)).status).toBe(200)

  mount(third, third)
  await until('the corrected pair is used', () => logged('TLS certificate renewed').length === 2)
  expect(await shown()).toBe(third.thumbprint)
  await until('the metric', async () => (await succeeded()) === '1')
  expect((await askOver(open)).status).toBe(200)

  // A file that the configuration names only now is watched too.
  writeFileSync(join(folder, 'other.crt'), first.cert)
  writeFileSync(join(folder, 'other.key'), first.key)
  writeFileSync(file, text.replace('tls.crt', 'other.crt').replace('tls.key', 'other.key'))
  await until('the other pair is used', () => logged('TLS certificate renewed').length === 3)
  expect(await shown()).toBe(first.thumbprint)
  writeFileSync(join(folder, 'other.crt'), second.cert)
  writeFileSync(join(folder, 'other.key'), second.key)
  await until('the renewed pair is used', () => logged('TLS certificate renewed').length === 4)
  expect(await shown()).toBe(second.thumbprint)
  expect(logged('need a restart')).toEqual([])
})
