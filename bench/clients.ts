/**
 * Measures the memory of a start, and of reloads, with many clients in the file:
 * `npm run bench:clients -- [--clients 100000] [FLAG OF NODE.JS]...`, such as `--max-old-space-size=256`.
 */
import { spawn } from 'node:child_process'
import { generateKeyPairSync } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'

const RELOADS = 3
const TICKS_PER_S = 100

const words = process.argv.slice(2)
const at = words.indexOf('--clients')
const [, count = '100000'] = at === -1 ? [] : words.splice(at, 2)

const folder = mkdtempSync(join(tmpdir(), 'sluice-clients-'))
process.once('exit', () => rmSync(folder, { recursive: true, force: true }))
const file = join(folder, 'sluice.yaml')

/** Writes the file; `limit` is that of each client. */
function writeClients(limit: number): void {
  const clients = Array.from(
    { length: Number(count) },
    (_, i) => `  - { id: client-${i}, limits: { requests: { limit: ${limit} } } }\n`,
  )
  writeFileSync(
    file,
    `listen: { host: 127.0.0.1, port: 0 }
admin: { port: 0 }
store: memory
upstreams: { data: { url: http://127.0.0.1:9 } }
tokens: { issuer: https://identity.example.com, audience: https://api.example.com, jwks: ${folder}/jwks.json }
limits: { requests: { per: [client], limit: 1000, window: 1m } }
routes: [{ match: "/*", upstream: data, authenticate: bearer, limits: [requests] }]
clients:
${clients.join('')}`,
  )
}

/** Returns the maximum resident memory of a process so far, in MB (2^20 bytes). */
function peakMb(pid: number): string {
  const [, kilobytes] = /^VmHWM:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))!
  return `${Math.round(Number(kilobytes) / 1024)} MB`
}

const { publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
/** Returns the processor time of a process so far, in seconds. */
function processorSeconds(pid: number): number {
  const [user, system] = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]!.split(' ').slice(11, 13)
  return (Number(user) + Number(system)) / TICKS_PER_S
}

writeFileSync(join(folder, 'jwks.json'), JSON.stringify({ keys: [publicKey.export({ format: 'jwk' })] }))
writeClients(1)
const child = spawn(process.execPath, [...words, 'dist/bin/sluice.js', 'start', '--config', file], {
  stdio: ['ignore', 'pipe', 'inherit'],
})
process.once('exit', () => child.kill('SIGKILL'))
child.once('exit', (code, signal) => {
  console.error(`the gateway ended: ${signal ?? code}`)
  process.exit(1)
})

let [steps, beforeS] = [0, 0]
for await (const line of createInterface(child.stdout)) {
  const { msg } = JSON.parse(line) as { readonly msg: string }
  if (msg === 'configuration rejected; the previous one stays in force') throw new Error(line)
  if (msg !== 'gateway started' && msg !== 'configuration reloaded') continue
  const afterS = processorSeconds(child.pid!)
  const name = steps === 0 ? 'start' : `reload ${steps}`
  console.log(
    `${name}: at most ${peakMb(child.pid!)} so far, ${(afterS - beforeS).toFixed(1)} s of processor time`,
  )
  if (steps === RELOADS) process.exit(0)
  steps += 1
  beforeS = afterS
  writeClients(steps + 1)
  child.kill('SIGHUP')
}
