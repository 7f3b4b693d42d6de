import { writeFileSync } from 'node:fs'
import type { RequestListener } from 'node:http'
import { createServer } from 'node:https'
import { createServer as createTcpServer, type Server } from 'node:net'
import { join } from 'node:path'
import { type TLSSocket, type TlsOptions } from 'node:tls'
import { describe, expect, it } from 'vitest'
import { createFolder } from '../helpers/folder.ts'
import { listenLocally } from '../helpers/local-server.ts'
import { makeCertificate } from '../helpers/self-signed.ts'
import type { Tls } from '../../src/upstream/addresses.ts'
import { get, startFront } from '../helpers/front.ts'
import { call, startGateway } from '../helpers/gateway.ts'

const server = makeCertificate('localhost')
const elsewhere = makeCertificate('data.internal')
const gateway = makeCertificate('gateway')
const stranger = makeCertificate('stranger')

const listening = async (started: Server): Promise<string> =>
  `https://localhost:${(await listenLocally(started)).port}`

/** A backend that responds with the names that it sees. */
async function backend(options: TlsOptions = server) {
  const seen: (string | undefined)[] = []
  const answer: RequestListener = (request, response) => {
    const socket = request.socket as TLSSocket
    seen.push(`${String(socket.servername)} ${socket.getPeerX509Certificate()?.subject ?? 'nobody'}`)
    request.resume().on('end', () => response.end('ok'))
  }
  const started = createServer({ ...options }, answer)
  return { url: await listening(started), seen }
}

const NOTHING = { ca: undefined, servername: undefined, cert: undefined, key: undefined }
const WITH_CA = { ...NOTHING, ca: server.cert }
const ASKING = { ...server, requestCert: true, ca: gateway.cert }

describe('an upstream over TLS', () => {
  it('an upstream over TLS gets requests if one of the authorities vouches for its name', async () => {
    const { url, seen } = await backend()
    const { port } = await startFront(url, { tls: WITH_CA })
    expect(await get(port, '/', { method: 'POST', headers: { Host: 'evil.example' } }, 'x')).toMatchObject({
      status: 200,
      body: 'ok',
    })
    expect(seen).toEqual(['localhost nobody'])
  })

  it('an upstream over TLS is addressed by the name that the configuration gives', async () => {
    const { url, seen } = await backend(elsewhere)
    const tls = { ...NOTHING, ca: elsewhere.cert, servername: 'data.internal' }
    expect((await get((await startFront(url, { tls })).port)).status).toBe(200)
    expect(seen).toEqual(['data.internal nobody'])
  })

  it('an upstream over TLS sees the certificate of the gateway', async () => {
    const { url, seen } = await backend(ASKING)
    const tls = { ...WITH_CA, cert: gateway.cert, key: gateway.key }
    expect((await get((await startFront(url, { tls })).port)).status).toBe(200)
    expect(seen).toEqual(['localhost CN=gateway'])
  })

  it.each<[string, TlsOptions, Tls | undefined, RegExp]>([
    ['no known authority has signed it', server, undefined, /self.signed certificate/],
    ['other authorities vouch for it', server, { ...NOTHING, ca: stranger.cert }, /self.signed certificate/],
    ['its certificate has another name', elsewhere, { ...NOTHING, ca: elsewhere.cert }, /altnames|cert's CN/],
    [
      'its certificate lacks the given name',
      server,
      { ...WITH_CA, servername: 'other' },
      /altnames|cert's CN/,
    ],
    ['it wants a certificate', ASKING, WITH_CA, /alert|socket hang up|ECONNRESET|EPIPE/],
    [
      'it wants another certificate',
      ASKING,
      { ...WITH_CA, cert: stranger.cert, key: stranger.key },
      /alert|socket hang up|ECONNRESET|EPIPE/,
    ],
    [
      'its version of TLS is old',
      { ...server, maxVersion: 'TLSv1.1' },
      WITH_CA,
      /alert|protocol|closed|ECONNRESET/,
    ],
  ])(
    'an upstream gets nothing, and its caller a 502, if %s; the log says why',
    async (_, options, tls, cause) => {
      const { url, seen } = await backend(options)
      const { port, outcomes } = await startFront(url, { tls })
      expect(await get(port, '/', { method: 'POST' }, 'secret')).toMatchObject({
        status: 502,
        body: expect.stringMatching(/^The upstream (cannot be reached|broke off)\.$/) as string,
      })
      expect(seen).toEqual([])
      expect((outcomes[0]!.error!.cause as Error).message).toMatch(cause)
    },
  )

  it('an upstream without TLS gets nothing, and its caller a 502', async () => {
    const url = await listening(
      createTcpServer((socket) =>
        socket
          .on('error', () => {})
          .resume()
          .end('HTTP/1.1 200 OK\r\n\r\n'),
      ),
    )
    const { port, outcomes } = await startFront(url, { tls: WITH_CA })
    expect((await get(port)).status).toBe(502)
    expect((outcomes[0]!.error!.cause as Error).message).toMatch(/wrong version|ECONNRESET|packet/)
  })

  it('an upstream over TLS is verified also if the environment disables that in Node.js', async () => {
    process.env['NODE_TLS_REJECT_UNAUTHORIZED'] = '0'
    try {
      const { url } = await backend()
      expect((await get((await startFront(url)).port)).status).toBe(502)
    } finally {
      delete process.env['NODE_TLS_REJECT_UNAUTHORIZED']
    }
  })

  it('an upstream over TLS is reached with the files that the configuration names', async () => {
    const folder = createFolder()
    for (const [name, text] of Object.entries({ ca: server.cert, cert: gateway.cert, key: gateway.key }))
      writeFileSync(join(folder, `${name}.pem`), text)
    const { url, seen } = await backend(ASKING)
    const started = await startGateway({
      data: url,
      upstream: { tls: { ca: `${folder}/ca.pem`, cert: `${folder}/cert.pem`, key: `${folder}/key.pem` } },
      routes: [{ match: '/*', upstream: 'data', authenticate: 'none' }],
      limits: {},
    })
    expect((await call(started.port)).status).toBe(200)
    expect(seen).toEqual(['localhost CN=gateway'])
  })
})

it('the certificate of an upstream is verified for each new socket', async () => {
  const answer: RequestListener = (_, response) => {
    response.writeHead(200, { Connection: 'close' }).end('ok')
  }
  const resumed: boolean[] = []
  const started = createServer({ ...server }, answer)
  started.on('secureConnection', (socket: TLSSocket) => resumed.push(socket.isSessionReused()))
  const { port, outcomes } = await startFront(await listening(started), { tls: WITH_CA })
  for (let i = 0; i < 2; i++) expect((await get(port)).status).toBe(200)
  expect(resumed).toEqual([false, false])
  started.setSecureContext(stranger)
  expect((await get(port)).status).toBe(502)
  expect((outcomes[2]!.error!.cause as Error).message).toMatch(/self.signed certificate/)
})
