import { execFile, execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { connect, type ConnectionOptions, type TLSSocket } from 'node:tls'
import { promisify } from 'node:util'
import { describe, expect, it } from 'vitest'
import { type IssuedCertificate, makeAuthority } from '../../helpers/authority.ts'
import { closeLater } from '../../helpers/closing.ts'
import { createFolder } from '../../helpers/folder.ts'
import { call, startLogging, written, yaml } from '../../helpers/gateway.ts'
import { askOver, statuses } from '../../helpers/raw.ts'
import { makeCertificate } from '../../helpers/self-signed.ts'
import { startUpstream } from '../../helpers/upstream.ts'
import { until } from '../../helpers/wait.ts'

const run = promisify(execFile)
/** Responses for which callers of `/oidc/held` wait. */
const held: (() => void)[] = []
const data = await startUpstream(({ url }, response) => {
  if (url === '/oidc/held') held.push(() => response.end('{}'))
  else response.end('{}')
})
const folder = createFolder()
const path = (name: string) => join(folder, name)
const write = (name: string, text: string) => writeFileSync(path(name), text)

const { cert, key } = makeCertificate()
write('ec.pem', cert)
write('ec.key', key)
const REQUEST = 'req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout'
execFileSync('openssl', [...REQUEST.split(' '), path('rsa.key'), '-out', path('rsa.pem')], { stdio: 'pipe' })

let files = 0
/** Starts a gateway with more settings of `listen.tls`, whose certificate has a key of a kind. */
async function start(tls: object = {}, kind: 'ec' | 'rsa' = 'ec') {
  const textOf = (settings: object) =>
    yaml({ data: data.url, listen: { tls: { cert: `${kind}.pem`, key: `${kind}.key`, ...settings } } })
  const file = path(`sluice-${++files}.yaml`)
  const gateway = await startLogging(written(textOf(tls), file))
  const reload = async (settings = tls) => {
    writeFileSync(file, textOf(settings))
    await gateway.running.reload('file-change')
  }
  return { ...gateway, reload }
}

/** Connects with openssl, and returns the suite; undefined if the handshake fails. */
async function suiteOf(port: number, ...flags: readonly string[]): Promise<string | undefined> {
  const args = ['s_client', '-connect', `127.0.0.1:${port}`, ...flags]
  const running = run('openssl', args)
  running.child.stdin!.end()
  const { stdout } = await running.catch((error: { readonly stdout: string }) => error)
  const [, suite] = /Cipher is (\S+)/.exec(stdout) ?? []
  return suite === '(NONE)' ? undefined : suite
}

const STRONG = {
  ec: ['ECDHE-ECDSA-AES128-GCM-SHA256', 'ECDHE-ECDSA-AES256-GCM-SHA384'],
  rsa: ['ECDHE-RSA-AES128-GCM-SHA256', 'ECDHE-RSA-AES256-GCM-SHA384'],
}

describe.each(['ec', 'rsa'] as const)('the suites of TLS 1.2 with a key of kind %s', (kind) => {
  it('are the forward-secret AEAD suites of RFC 9325, and no others of OpenSSL', async () => {
    const { port } = await start({}, kind)
    const { stdout } = await run('openssl', ['ciphers', '-s', '-tls1_2', 'ALL:COMPLEMENTOFALL:@SECLEVEL=0'])
    const all = stdout.trim().split(':')
    const weak = ['AES256-SHA', 'AES128-SHA256', 'AES128-GCM-SHA256', 'ECDHE-RSA-AES256-SHA']
    expect(all).toEqual(expect.arrayContaining([...weak, ...STRONG[kind]]))
    const ofTls12 = (suite: string) => suiteOf(port, '-tls1_2', '-cipher', `${suite}:@SECLEVEL=0`)
    for (const suite of STRONG[kind]) expect(await ofTls12(suite)).toBe(suite)
    const others = all.filter((suite) => !STRONG[kind].includes(suite) && !suite.startsWith('TLS_'))
    expect(await ofTls12(others.join(':'))).toBeUndefined()
    for (const suite of weak) expect(await ofTls12(suite)).toBeUndefined()
  })
})

describe('listen.tls', () => {
  it('accepts TLS 1.2 and 1.3, and nothing older', async () => {
    const { port } = await start()
    expect(await suiteOf(port, '-tls1_2')).toMatch(/^ECDHE-ECDSA-AES\d+-GCM-SHA\d+$/)
    expect(await suiteOf(port, '-tls1_3')).toMatch(/^TLS_/)
    for (const old of ['-tls1_1', '-tls1'])
      expect(await suiteOf(port, old, '-cipher', 'ALL:@SECLEVEL=0')).toBeUndefined()
  })

  it('accepts only TLS 1.3 with minVersion 1.3, also after a reload', async () => {
    const { port, reload } = await start({ minVersion: 1.3 })
    expect(await suiteOf(port, '-tls1_2')).toBeUndefined()
    expect(await suiteOf(port, '-tls1_3')).toMatch(/^TLS_/)
    await reload({})
    expect(await suiteOf(port, '-tls1_2')).toMatch(/^ECDHE-/)
    await reload({ minVersion: 1.3 })
    expect(await suiteOf(port, '-tls1_2')).toBeUndefined()
  })

  it('accepts exactly the suites in ciphers, and the default ones of a version without a suite there', async () => {
    const own = await start({ ciphers: 'ECDHE-ECDSA-CHACHA20-POLY1305' })
    expect(await suiteOf(own.port, '-tls1_2')).toBe('ECDHE-ECDSA-CHACHA20-POLY1305')
    expect(await suiteOf(own.port, '-tls1_2', '-cipher', STRONG.ec.join(':'))).toBeUndefined()
    expect(await suiteOf(own.port, '-tls1_3')).toMatch(/^TLS_/)
    const of13 = await start({ ciphers: 'TLS_AES_256_GCM_SHA384' })
    expect(await suiteOf(of13.port, '-tls1_3')).toBe('TLS_AES_256_GCM_SHA384')
    expect(await suiteOf(of13.port, '-tls1_3', '-ciphersuites', 'TLS_AES_128_GCM_SHA256')).toBeUndefined()
    expect(await suiteOf(of13.port, '-tls1_2')).toMatch(/^ECDHE-ECDSA-AES/)
  })
})

const authority = makeAuthority('clients')
const second = makeAuthority('more clients')
const [valid, revoked, ofSecond] = [
  authority.issue('valid'),
  authority.issue('revoked'),
  second.issue('of the second'),
]
write('clients.pem', authority.cert)
write('both.pem', authority.cert + second.cert)
write('valid.pem', valid.cert)
write('valid.key', valid.key)
write('revoked.pem', revoked.cert)
write('revoked.key', revoked.key)
const PAST = { thisUpdateMs: -7_200_000, nextUpdateMs: -60_000 }

async function connected(
  port: number,
  { cert, key }: IssuedCertificate,
  options: ConnectionOptions = {},
): Promise<TLSSocket> {
  const socket = connect({ port, host: '127.0.0.1', rejectUnauthorized: false, cert, key, ...options })
  closeLater(() => socket.destroy())
  socket.on('error', () => {})
  await once(socket, 'secureConnect')
  return socket
}
const statusOf = async (port: number, client: IssuedCertificate) =>
  (await askOver(await connected(port, client))).status
/** Starts a gateway that requires client certificates, and checks them by lists. */
async function startRevoking(crl: string | readonly string[], clientCa = 'clients.pem') {
  const gateway = await start({ clientCa, crl })
  const has = (words: string, fields: object = {}) =>
    gateway.lines().some((line) => {
      const isSame = Object.entries(fields).every(([name, value]) => line[name] === value)
      return isSame && String(line['msg']).includes(words)
    })
  const nextUpdate = async () => {
    const { body } = await call(gateway.adminPort, { path: '/metrics' })
    const series = /^sluice_tls_crl_next_update_timestamp_seconds\{crl="listen\.tls\.crl"\} (\S+)$/m
    return Number(series.exec(body)?.[1]) * 1000 - Date.now()
  }
  return { ...gateway, has, nextUpdate }
}

describe('a revoked client certificate', () => {
  it('is refused in the handshake, as the log says, and others of its authority are not', async () => {
    write('lists.pem', authority.list([revoked]))
    const { port, has } = await startRevoking('lists.pem')
    expect(await statusOf(port, valid)).toBe(200)
    expect(await statusOf(port, revoked)).toBeUndefined()
    await until('it is logged', () => has('TLS handshake failed', { error: 'CERT_REVOKED' }))
    const of = (name: string) => ['-tls1_2', '-cert', path(`${name}.pem`), '-key', path(`${name}.key`)]
    expect(await suiteOf(port, ...of('valid'))).toMatch(/^ECDHE-/)
  })

  it('is refused from the reload of a new list on; its open connections end with their next response', async () => {
    write('rotated.pem', authority.list([]))
    const gateway = await startRevoking('rotated.pem')
    const [open, idle] = [await connected(gateway.port, revoked), await connected(gateway.port, revoked)]
    expect((await askOver(open)).status).toBe(200)
    expect((await askOver(idle)).status).toBe(200)
    expect(await gateway.nextUpdate()).toBeGreaterThan(86_000_000)

    write('rotated.pem', authority.list([revoked], { nextUpdateMs: 2 * 86_400_000 }))
    await gateway.reload()
    await until('the idle connections end', () => open.destroyed && idle.destroyed)
    expect(await statusOf(gateway.port, revoked)).toBeUndefined()
    expect(await statusOf(gateway.port, valid)).toBe(200)
    expect(await gateway.nextUpdate()).toBeGreaterThan(172_000_000)
    await until('it is logged', () => gateway.has('certificate revocation list renewed'))
    expect(gateway.has('TLS certificate renewed')).toBe(false)
    expect(gateway.has('need a restart')).toBe(false)
  })

  it('is refused also with a session from before the reload, which is not resumed', async () => {
    write('resumed.pem', authority.list([]))
    const { port, reload } = await startRevoking('resumed.pem')
    const of12 = { maxVersion: 'TLSv1.2' } as const
    const first = await connected(port, revoked, of12)
    expect((await askOver(first)).status).toBe(200)
    const session = first.getSession()!
    const resumed = await connected(port, revoked, { ...of12, session })
    expect(resumed.isSessionReused()).toBe(true)
    write('resumed.pem', authority.list([revoked]))
    await reload()
    await expect(connected(port, revoked, { ...of12, session })).rejects.toThrow('disconnected before secure')
  })

  it('ends a busy connection with the response that it waits for', async () => {
    write('busy.pem', authority.list([]))
    const gateway = await startRevoking('busy.pem')
    const busy = await connected(gateway.port, revoked)
    let text = ''
    busy.on('data', (chunk: Buffer) => (text += chunk.toString()))
    const request = 'GET /oidc/held HTTP/1.1\r\nHost: a\r\n\r\n'
    busy.write(request)
    await until('the request is in progress', () => held.length === 1)
    write('busy.pem', authority.list([revoked]))
    await gateway.reload()
    busy.write(request)
    held[0]!()
    await until('it ends', () => busy.destroyed)
    expect(statuses(text)).toEqual([200])
    expect(text).toContain('Connection: close')
    expect(held).toHaveLength(1)
  })

  it('stays refused if the next list is broken, of another authority, or missing', async () => {
    write('broken.pem', authority.list([revoked]))
    const gateway = await startRevoking('broken.pem')
    for (const [list, mistake] of [
      ['-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n', 'contains no valid PEM revocation list'],
      [second.list([]), 'has a revocation list that no authority of clientCa has signed'],
      [makeAuthority('clients').list([]), 'has a revocation list that no authority of clientCa has signed'],
      ['', 'contains no valid PEM revocation list'],
    ] as const) {
      write('broken.pem', list)
      await gateway.reload()
      await until('it is logged', () =>
        gateway
          .lines()
          .some(({ msg, problems }) => /rejected/.test(String(msg)) && String(problems).includes(mistake)),
      )
      expect(await statusOf(gateway.port, valid)).toBe(200)
      expect(await statusOf(gateway.port, revoked)).toBeUndefined()
    }
  })
})

describe('a revocation list that has expired', () => {
  it('refuses every client certificate of its authority, and the gateway logs it', async () => {
    write('old.pem', authority.list([], PAST))
    write('second.pem', second.list([]))
    const gateway = await startRevoking(['old.pem', 'second.pem'], 'both.pem')
    const warning = {
      path: 'listen.tls.crl',
      level: 'warn',
    }
    expect(gateway.has('so the client certificates of that authority are refused', warning)).toBe(true)
    expect(await statusOf(gateway.port, valid)).toBeUndefined()
    await until('it is logged', () => gateway.has('TLS handshake failed', { error: 'CRL_HAS_EXPIRED' }))
    expect(await statusOf(gateway.port, ofSecond)).toBe(200)
    expect(await gateway.nextUpdate()).toBeLessThan(0)

    write('old.pem', authority.list([]))
    await gateway.reload()
    expect(await statusOf(gateway.port, valid)).toBe(200)
  })

  it('may stay in the file with its successor', async () => {
    write('succeeded.pem', authority.list([], PAST) + authority.list([revoked]))
    const gateway = await startRevoking('succeeded.pem')
    expect(gateway.has('listen.tls.crl')).toBe(false)
    expect(await statusOf(gateway.port, valid)).toBe(200)
    expect(await statusOf(gateway.port, revoked)).toBeUndefined()
    expect(await gateway.nextUpdate()).toBeGreaterThan(80_000_000)
  })
})
