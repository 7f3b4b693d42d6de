import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { connect, type ConnectionOptions } from 'node:tls'
import { once } from 'node:events'
import { describe, expect, it } from 'vitest'
import { makeAuthority } from '../helpers/authority.ts'
import { createFolder } from '../helpers/folder.ts'
import { startGateway, startLogging, written, yaml } from '../helpers/gateway.ts'
import { bearerOf, callSecurely, OPERATOR_TOKENS, setting } from '../helpers/operators.ts'
import { freePort } from '../helpers/ports.ts'
import { makeCertificate } from '../helpers/self-signed.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { sluice } from '../commands/run.ts'
import { until } from '../helpers/wait.ts'

const upstream = await startUpstream()
const server = makeCertificate('localhost', 30 * 86_400_000, '127.0.0.1')
const [ada, desk, unlisted, stranger] = [
  makeCertificate('ada'),
  makeCertificate('desk, first+floor'),
  makeCertificate('unlisted'),
  makeCertificate('ada'),
]
const night = makeCertificate('Jürgen')

/** Writes the files of a gateway whose operators have certificates, and starts it. */
async function start() {
  const folder = createFolder()
  const write = (name: string, text: string) => writeFileSync(join(folder, name), text)
  write('cert.pem', server.cert)
  write('key.pem', server.key)
  write('operators.pem', ada.cert + desk.cert + night.cert + unlisted.cert)
  const text = yaml({
    data: upstream.url,
    admin: {
      port: 0,
      tls: { cert: 'cert.pem', key: 'key.pem', clientCa: 'operators.pem' },
      tokens: [
        { name: 'ops', token: OPERATOR_TOKENS.ops, may: 'set' },
        { name: 'ada', subject: 'CN=ada', may: 'set' },
        { name: 'night', subject: String.raw`CN=J\C3\BCrgen`, may: ['requests'] },
        { name: 'desk', subject: String.raw`CN=desk\, first\+floor`, may: 'read' },
      ],
    },
  })
  const gateway = await startLogging(written(text, join(folder, 'sluice.yaml')))
  return { ...gateway, folder, write, text }
}
const gateway = await start()
const ask = (path: string, more: Parameters<typeof callSecurely>[2] = {}) =>
  callSecurely(gateway.adminPort, path, more)
const certificateOf = ({ cert, key }: typeof ada) => ({ cert, key })

describe('a client certificate', () => {
  it('names the operator by its subject, with the rights of the entry', async () => {
    expect((await ask('/overview', certificateOf(ada))).json.operator).toEqual({ name: 'ada', may: 'set' })
    expect((await ask('/overview', certificateOf(desk))).json.operator).toEqual({ name: 'desk', may: 'read' })
    expect((await ask('/overview', certificateOf(night))).json.operator.name).toBe('night')
    const change = setting({ requests: 5 })
    expect((await ask('/limits/acme', { ...certificateOf(ada), ...change })).json).toMatchObject({
      by: 'ada',
    })
    expect(await ask('/limits/acme', { ...certificateOf(desk), ...change })).toMatchObject({
      status: 403,
      json: { detail: '"desk" may only read; changes need the right "set" in admin.tokens.' },
    })
  })

  it.each([
    [
      'without an entry',
      unlisted,
      'No entry of admin.tokens has the subject of the client certificate, "CN=unlisted".',
    ],
    [
      'of the same name by another authority',
      stranger,
      'The client certificate is not accepted: DEPTH_ZERO_SELF_SIGNED_CERT.',
    ],
    [
      'that is missing',
      undefined,
      'Send admin.token, or your token of admin.tokens, as "Authorization: Bearer …".',
    ],
  ])('%s is refused', async (_, certificate, detail) => {
    const got = await ask('/overview', certificate && certificateOf(certificate))
    expect(got).toMatchObject({ status: 401, json: { detail } })
  })

  it('is not needed by probes, Prometheus and tokens, and a token counts before it', async () => {
    for (const path of ['/healthz', '/metrics', '/']) expect((await ask(path)).status).toBe(200)
    const both = { ...certificateOf(ada), headers: bearerOf(OPERATOR_TOKENS.ops) }
    expect((await ask('/overview', both)).json.operator.name).toBe('ops')
    const wrong = { ...certificateOf(ada), headers: bearerOf('a-wrong-token') }
    expect((await ask('/overview', wrong)).status).toBe(401)
  })

  it('is of no use to a page of another origin, whose browser would send it', async () => {
    const from = (origin: string) => ask('/overview', { ...certificateOf(ada), headers: { Origin: origin } })
    expect((await from('https://evil.example')).status).toBe(403)
    expect((await from(`http://127.0.0.1:${gateway.adminPort}`)).status).toBe(403)
    expect((await from(`https://127.0.0.1:${gateway.adminPort}`)).status).toBe(200)
    const rebound = { ...certificateOf(ada), headers: { Host: 'evil.example' } }
    expect((await ask('/overview', rebound)).status).toBe(403)
  })
})

it('is https in the links of other consoles', async () => {
  const { text, write, folder } = gateway
  const port = await freePort()
  write(
    'named.yaml',
    text.replace('port: 0, tls', `port: ${port}, host: 0.0.0.0, hosts: [sluice.internal], tls`),
  )
  const named = await startGateway({ file: join(folder, 'named.yaml') })
  const { gateways } = (await callSecurely(named.adminPort, '/overview', certificateOf(ada))).json
  expect(gateways[0].admin).toBe(`https://sluice.internal:${port}`)
})

describe('a revoked client certificate', () => {
  it('is refused, also after the reload of a list; a token is still accepted', async () => {
    const authority = makeAuthority('operators')
    const [kept, gone] = [authority.issue('ada'), authority.issue('ada')]
    const running = await start()
    const askNow = (certificate: typeof kept) =>
      callSecurely(running.adminPort, '/overview', { cert: certificate.cert, key: certificate.key })
    running.write('operators.pem', authority.cert)
    running.write('lists.pem', authority.list([]))
    const text = running.text.replace('clientCa: operators.pem', 'clientCa: operators.pem, crl: lists.pem')
    writeFileSync(join(running.folder, 'sluice.yaml'), text)
    await running.running.reload('file-change')
    for (const certificate of [kept, gone]) expect((await askNow(certificate)).status).toBe(200)

    running.write('lists.pem', authority.list([gone]))
    await running.running.reload('file-change')
    expect((await askNow(kept)).status).toBe(200)
    expect(await askNow(gone)).toMatchObject({
      status: 401,
      json: { detail: 'The client certificate is not accepted: CERT_REVOKED.' },
    })
    const token = { headers: bearerOf(OPERATOR_TOKENS.ops) }
    expect((await callSecurely(running.adminPort, '/overview', token)).status).toBe(200)
  })
})

describe('the suites of admin.tls', () => {
  it('are those of listen.tls', async () => {
    const connects = async (options: ConnectionOptions) => {
      const to = { host: '127.0.0.1', port: gateway.adminPort, rejectUnauthorized: false }
      const socket = connect({ ...to, ...options })
      const isSecure = await once(socket, 'secureConnect').then(
        () => true,
        () => false,
      )
      socket.destroy()
      return isSecure
    }
    const of12 = { maxVersion: 'TLSv1.2' } as const
    expect(await connects(of12)).toBe(true)
    expect(await connects({ ...of12, ciphers: 'ECDHE-ECDSA-AES128-SHA:ECDHE-ECDSA-AES256-SHA384' })).toBe(
      false,
    )
  })
})

describe('a reload', () => {
  it('replaces the certificate, the authorities, the operators and their rights without a restart', async () => {
    const running = await start()
    const askNow = (path: string, more: Parameters<typeof callSecurely>[2] = {}) =>
      callSecurely(running.adminPort, path, more)
    async function fingerprint() {
      const socket = connect({ host: '127.0.0.1', port: running.adminPort, rejectUnauthorized: false })
      await once(socket, 'secureConnect')
      const shown = socket.getPeerX509Certificate()!.raw
      socket.destroy()
      return shown
    }
    expect(await fingerprint()).toEqual(server.der)
    expect((await askNow('/overview', certificateOf(ada))).status).toBe(200)

    const renewed = makeCertificate('localhost', 60 * 86_400_000, '127.0.0.1')
    running.write('cert.pem', renewed.cert)
    running.write('key.pem', renewed.key)
    running.write('operators.pem', desk.cert)
    const text = running.text.replace(
      `token: ${OPERATOR_TOKENS.ops}, may: set`,
      `token: ${OPERATOR_TOKENS.team}, may: read`,
    )
    writeFileSync(join(running.folder, 'sluice.yaml'), text)
    await running.running.reload('file-change')
    expect(await fingerprint()).toEqual(renewed.der)
    expect((await askNow('/overview', certificateOf(ada))).status).toBe(401)
    expect((await askNow('/overview', certificateOf(desk))).status).toBe(200)
    expect((await askNow('/overview', { headers: bearerOf(OPERATOR_TOKENS.ops) })).status).toBe(401)
    const { operator } = (await askNow('/overview', { headers: bearerOf(OPERATOR_TOKENS.team) })).json
    expect(operator).toEqual({ name: 'ops', may: 'read' })
    expect(running.lines().filter(({ msg }) => String(msg).includes('need a restart'))).toEqual([])
    await until('it is logged', () => running.lines().some(({ msg }) => msg === 'secrets renewed'))
    expect(running.stdout()).not.toMatch(new RegExp(Object.values(OPERATOR_TOKENS).join('|')))
  })
})

describe('the commands', () => {
  const file = join(gateway.folder, 'sluice.yaml')
  const config = () => ['--config', file, '--admin-port', String(gateway.adminPort)]
  const url = `https://127.0.0.1:${gateway.adminPort}`
  const write = (name: string, text: string) => {
    gateway.write(name, text)
    return join(gateway.folder, name)
  }
  const [cert, key, ca] = [
    write('ada.pem', ada.cert),
    write('ada.key', ada.key),
    write('ca.pem', server.cert),
  ]

  it('trust exactly the certificate that the file names, at any address of it', async () => {
    const env = { ADMIN_TOKEN: OPERATOR_TOKENS.ops }
    expect(await sluice(['limits', 'show', 'acme', ...config()], { env })).toMatchObject({ code: 0 })
    expect(await sluice(['health', ...config()])).toMatchObject({ code: 0, stdout: 'ok\n' })
    const other = makeCertificate('localhost', 86_400_000, '127.0.0.1')
    const folder = createFolder()
    writeFileSync(join(folder, 'cert.pem'), other.cert)
    writeFileSync(join(folder, 'sluice.yaml'), gateway.text)
    const elsewhere = ['--config', join(folder, 'sluice.yaml'), '--admin-port', String(gateway.adminPort)]
    const refused = await sluice(['limits', 'show', 'acme', ...elsewhere], { env })
    expect(refused).toMatchObject({ code: 1 })
    expect(refused.stderr).toContain('give the authority of its certificate with --ca')
  })

  it('reach an https listener with --ca, and are the operator of a certificate or of a token in a file', async () => {
    const by = async (args: readonly string[], env: Record<string, string> = {}) => {
      const reset = ['limits', 'reset', 'acme', '--json', '--admin', url]
      const { code, stdout, stderr } = await sluice([...reset, ...args], { env })
      return code === 0 ? (JSON.parse(stdout) as { by: string }).by : stderr + stdout
    }
    expect(await by(['--ca', ca, '--cert', cert, '--key', key])).toBe('ada')
    expect(await by([], { ADMIN_CA: ca, ADMIN_CERT: cert, ADMIN_KEY: key })).toBe('ada')
    expect(
      await by(['--ca', ca], { ADMIN_TOKEN: `file:${write('token', `${OPERATOR_TOKENS.ops}\n`)}` }),
    ).toBe('ops')
    expect(await by(['--ca', ca], { ADMIN_TOKEN: 'file:/nowhere/token' })).toContain(
      'ADMIN_TOKEN refers to /nowhere/token, which does not exist.',
    )
    expect(await by([], { ADMIN_TOKEN: OPERATOR_TOKENS.ops })).toContain(
      'SELF_SIGNED_CERT; give the authority',
    )
    expect(await by(['--ca', join(gateway.folder, 'nothing.pem')])).toContain(
      'nothing.pem, which does not exist',
    )
    expect(await by(['--ca', ca, '--cert', cert])).toContain('needs both --cert and --key')
    const plain = await sluice(['limits', 'show', 'acme', '--admin', url.replace('https', 'http')])
    expect(plain.stderr).toContain('write https:// if it has admin.tls')
  })

  it('say which right is lacking', async () => {
    const args = ['limits', 'set', 'acme', 'requests=0', '--admin', url, '--ca', ca]
    const identity = ['--cert', write('desk.pem', desk.cert), '--key', write('desk.key', desk.key)]
    expect(await sluice([...args, ...identity])).toMatchObject({
      code: 1,
      stderr: `sluice: The gateway at ${url} cannot do this: "desk" may only read; changes need the right "set" in admin.tokens.\n`,
    })
  })
})
