import { spawn } from 'node:child_process'
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { withOwnFolders } from './nginx.ts'
import { withTests } from './process.ts'
import { freePort } from './redis.ts'
import { until } from './wait.ts'

const FILES = join(import.meta.dirname, '../../deploy/forward-auth')

/** The programs that ask in the tests, by their files in deploy/forward-auth. */
export const ASKING = {
  nginx: ['nginx', '-p', '.', '-c', 'nginx.conf', '-e', 'stderr'],
  caddy: ['caddy', 'run', '--config', 'Caddyfile'],
  haproxy: ['haproxy', '-f', 'haproxy.cfg'],
} as const

export type AskingProxy = keyof typeof ASKING

/** Starts a proxy with its file of deploy/forward-auth, which asks the gateway at `askPort` and forwards to `dataPort`. `edit` changes the files. */
export async function startAsking(
  proxy: AskingProxy,
  askPort: number,
  dataPort: number,
  edit = (_name: string, text: string): string => text,
) {
  const [program, ...args] = ASKING[proxy]
  const folder = mkdtempSync(join(tmpdir(), `sluice-${proxy}-`))
  cpSync(FILES, folder, { recursive: true })
  const port = await freePort()
  for (const name of readdirSync(folder)) {
    const text = withOwnFolders(edit(name, readFileSync(join(folder, name), 'utf8')))
      .replaceAll('127.0.0.1:8090', `127.0.0.1:${askPort}`)
      .replaceAll('data.internal:4000', `127.0.0.1:${dataPort}`)
      .replace(/\blisten 8080|bind :8080/g, (found) => found.replace(/:?8080/, `127.0.0.1:${port}`))
      .replace(/^:8080/m, `:${port}`)
      .replace('maxconn 10000', 'maxconn 1000')
    writeFileSync(join(folder, name), name === 'nginx.conf' ? `daemon off;\n${text}` : text)
  }
  const env = { ...process.env, HOME: folder, XDG_DATA_HOME: folder, XDG_CONFIG_HOME: folder }
  const child = withTests(spawn(program, args, { cwd: folder, env, stdio: ['ignore', 'pipe', 'pipe'] }))
  let output = ''
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk: Buffer) => (output += chunk.toString()))
  let failure: Error | undefined
  child.once('error', (cause) => (failure = new Error(`${program} is missing; run npm run setup`, { cause })))
  await until(`${program} serves`, () => {
    if (failure !== undefined) throw failure
    if (child.exitCode !== null) throw new Error(output)
    return fetch(`http://127.0.0.1:${port}/`).then(Boolean, () => false)
  })
  return {
    port,
    close() {
      child.kill('SIGTERM')
      rmSync(folder, { recursive: true, force: true })
    },
  }
}
