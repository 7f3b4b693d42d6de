import { spawn } from 'node:child_process'
import { cpSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { closeLater } from './closing.ts'
import { createFolder } from './folder.ts'
import { withOwnFolders } from './nginx.ts'
import { withTests } from './process.ts'
import type { TestGateway } from './gateway.ts'
import { makeCertificate } from './self-signed.ts'
import { freePort } from './ports.ts'
import { until } from './wait.ts'

const FILES = join(import.meta.dirname, '../../deploy/forward-auth')

/** The programs that ask in the tests, by their files in deploy/forward-auth. */
export const ASKING = {
  nginx: ['nginx', '-p', '.', '-c', 'nginx.conf', '-e', 'stderr'],
  caddy: ['caddy', 'run', '--config', 'Caddyfile'],
  haproxy: ['haproxy', '-f', 'haproxy.cfg'],
} as const

export type AskingProxy = keyof typeof ASKING

/** Keys of `listen`, after a comma, for a proxy without TLS, whose callers' tokens are refused otherwise. */
export const PLAIN = { publicUrl: 'http://api.example.com' }

export interface Asking {
  /** Changes a file before it is used. */
  edit?(this: void, name: string, text: string): string
  /** True for TLS and HTTP/2, by the lines that the comments of the files name. */
  readonly tls?: boolean
  /** The lines of the files that are switched on, by the words at their end. */
  readonly on?: readonly string[]
}

/** Removes the comment sign of the lines that end in these words. */
const switchOn = (text: string, words: string): string =>
  text.replaceAll(new RegExp(`^(\\s*)(?:#|--) (.*?) (?:#|--) ${words}$`, 'gm'), '$1$2')

/** A Sluice that a proxy asks. */
export type AskedSluice = Pick<TestGateway, 'askPort' | 'adminPort'>

const LISTENING = /\blisten 8080|\bbind :8080|^:8080 {/gm
const certificate = makeCertificate('localhost')

/** Starts a proxy with its file of deploy/forward-auth, which asks one or two Sluices and forwards to `dataPort`. */
export async function startAsking(
  proxy: AskingProxy,
  [first, second = first]: readonly [AskedSluice, AskedSluice?],
  dataPort: number,
  { edit = (_, text) => text, tls = false, on = [] }: Asking = {},
) {
  const [program, ...args] = ASKING[proxy]
  const folder = createFolder()
  cpSync(FILES, folder, { recursive: true })
  const port = await freePort()
  writeFileSync(join(folder, 'gateway.pem'), certificate.cert + certificate.key)
  const pem = join(folder, 'gateway.pem')
  const listening = {
    nginx: `listen 127.0.0.1:${port}${tls ? ` ssl http2; ssl_certificate ${pem}; ssl_certificate_key ${pem}` : ''}`,
    haproxy: `bind 127.0.0.1:${port}${tls ? ` ssl crt ${pem} alpn h2,http/1.1` : ''}`,
    caddy: tls ? `https://localhost:${port}, https://:${port} {\n\ttls ${pem} ${pem}` : `:${port} {`,
  }
  const innerPort = await freePort()
  for (const name of readdirSync(folder)) {
    const shipped = on.reduce(switchOn, readFileSync(join(folder, name), 'utf8'))
    const text = withOwnFolders(edit(name, shipped))
      .replaceAll('127.0.0.1:8090', `127.0.0.1:${first.askPort}`)
      .replaceAll('192.0.2.2:8090', `127.0.0.1:${second.askPort}`)
      .replaceAll('127.0.0.1:8089', `127.0.0.1:${innerPort}`)
      .replace(/(check port|health_port) 9090/, `$1 ${first.adminPort}`)
      .replace(/(server two .*)/, `$1 port ${second.adminPort}`)
      .replaceAll('data.internal:4000', `127.0.0.1:${dataPort}`)
      .replace(LISTENING, listening[proxy])
      .replace('fd-hard-limit 20000', 'fd-hard-limit 2000')
    writeFileSync(join(folder, name), name === 'nginx.conf' ? `daemon off;\n${text}` : text)
  }
  const env = { ...process.env, HOME: folder, XDG_DATA_HOME: folder, XDG_CONFIG_HOME: folder }
  const child = withTests(spawn(program, args, { cwd: folder, env, stdio: ['ignore', 'pipe', 'pipe'] }))
  function close(): void {
    child.kill('SIGTERM')
    // HAProxy waits for its callers. The workers of nginx end only with a master that ends by itself.
    if (proxy === 'haproxy') child.kill('SIGKILL')
  }
  closeLater(close)
  let output = ''
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk: Buffer) => (output += chunk.toString()))
  let failure: Error | undefined
  child.once('error', (cause) => (failure = new Error(`${program} is missing; run npm run setup`, { cause })))
  await until(`${program} serves`, () => {
    if (failure !== undefined) throw failure
    if (child.exitCode !== null) throw new Error(output)
    return isListening(port)
  })
  return { port, close }
}

const isListening = (port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1')
    socket.on('connect', () => resolve(true)).on('error', () => resolve(false))
    socket.on('connect', () => socket.destroy())
  })
