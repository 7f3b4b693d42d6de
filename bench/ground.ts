/** What the contenders stand on: a free port, processes that end with the bench, an upstream, a Redis, tokens. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { type AddressInfo, connect, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { exportJWK, generateKeyPair, SignJWT } from 'jose'

export const ISSUER = 'https://identity.bench.example/oidc'
export const AUDIENCE = 'https://api.bench.example'

/** The folder of everything that the bench writes. */
export const folder = mkdtempSync(join(tmpdir(), 'sluice-bench-'))
const children = new Set<ChildProcess>()

export function cleanUp(): void {
  for (const child of children) child.kill('SIGKILL')
  rmSync(folder, { recursive: true, force: true })
}

/** Says what is missing before anything is started. */
export function need(...commands: string[]): void {
  const missing = commands.filter((command) => spawnSync('which', [command]).status !== 0)
  if (missing.length > 0)
    throw new Error(
      `missing: ${missing.join(', ')} (Debian: apt-get install wrk nginx-light redis-server util-linux)`,
    )
}

/** Starts a process on one CPU and waits until it listens on `port`. */
export async function run(
  cpu: number,
  port: number,
  command: string,
  args: string[],
  env = {},
): Promise<ChildProcess> {
  const child = spawn('taskset', ['-c', String(cpu), command, ...args], {
    stdio: ['ignore', 'ignore', 'inherit'],
    env: { ...process.env, ...env },
  })
  children.add(child)
  child.once('exit', () => children.delete(child))
  for (let tries = 0; tries < 200; tries++) {
    if (child.exitCode !== null) break
    if (await listens(port)) return child
    await sleep(50)
  }
  throw new Error(`${command} does not listen on ${port}`)
}

export async function stop(child: ChildProcess): Promise<void> {
  const ended = new Promise((resolve) => child.once('exit', resolve))
  child.kill('SIGKILL')
  await ended
}

export const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

function listens(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1')
    socket.once('connect', () => resolve(true)).once('error', () => resolve(false))
    socket.once('connect', () => socket.destroy())
  })
}

export function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address() as AddressInfo
      server.close(() => resolve(port))
    })
  })
}

/** nginx that answers every request with 1 KiB of JSON. */
export async function startNginx(cpu: number): Promise<number> {
  const port = await freePort()
  const file = join(folder, 'nginx.conf')
  writeFileSync(
    file,
    `daemon off; master_process off; pid ${folder}/nginx.pid; error_log /dev/null crit;
events { worker_connections 1024; }
http { access_log off; keepalive_requests 1000000000; keepalive_timeout 1h; default_type application/json;
  server { listen 127.0.0.1:${port}; location / { return 200 '{"data":"${'x'.repeat(1013)}"}'; } } }
`,
  )
  await run(cpu, port, 'nginx', ['-c', file, '-p', folder])
  return port
}

export async function startRedis(cpu: number): Promise<number> {
  const port = await freePort()
  await run(cpu, port, 'redis-server', [
    '--port',
    String(port),
    '--bind',
    '127.0.0.1',
    '--save',
    '',
    '--appendonly',
    'no',
    '--dir',
    folder,
  ])
  return port
}

/** A JWKS file, and a file of valid tokens, one a line, of as many clients. */
export async function mintTokens(
  algorithm: string,
  count: number,
): Promise<{ jwks: string; tokens: string }> {
  const { publicKey, privateKey } = await generateKeyPair(algorithm, { extractable: true })
  const jwks = join(folder, 'jwks.json')
  writeFileSync(
    jwks,
    JSON.stringify({ keys: [{ ...(await exportJWK(publicKey)), kid: 'k', alg: algorithm, use: 'sig' }] }),
  )
  const lines: string[] = []
  for (let i = 0; i < count; i++) {
    const claims = { client_id: `client-${i}`, sub: `user-${i}`, jti: String(i) }
    const token = new SignJWT(claims).setProtectedHeader({ alg: algorithm, kid: 'k', typ: 'at+jwt' })
    lines.push(
      await token
        .setIssuer(ISSUER)
        .setAudience(AUDIENCE)
        .setIssuedAt()
        .setExpirationTime('2h')
        .sign(privateKey),
    )
  }
  const tokens = join(folder, 'tokens.txt')
  writeFileSync(tokens, lines.join('\n'))
  return { jwks, tokens }
}

export interface Load {
  readonly rps: number
  readonly p50Us: number
  readonly p99Us: number
  readonly failed: number
}

/** One round of wrk; `failed` counts answers that were no success and errors. */
export function wrk(cpu: number, port: number, seconds: number, connections: number, tokens: string): Load {
  const done = spawnSync(
    'taskset',
    [
      '-c',
      String(cpu),
      'wrk',
      '-t1',
      `-c${connections}`,
      `-d${seconds}s`,
      '-s',
      new URL('round-robin.lua', import.meta.url).pathname,
      `http://127.0.0.1:${port}`,
    ],
    { encoding: 'utf8', env: { ...process.env, SLUICE_BENCH_TOKENS: tokens } },
  )
  const result = /RESULT (\{.*\})/.exec(done.stdout)?.[1]
  if (result === undefined) throw new Error(`wrk failed: ${done.stderr}${done.stdout}`)
  const { requests, durationUs, p50Us, p99Us, non2xx, errors } = JSON.parse(result) as Record<string, number>
  return { rps: (requests! / durationUs!) * 1e6, p50Us: p50Us!, p99Us: p99Us!, failed: non2xx! + errors! }
}

/** Processor seconds and resident megabytes of a process, from /proc. */
export function usage(pid: number): { cpuS: number; rssMb: number } {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return {
    cpuS: (Number(fields[11]) + Number(fields[12])) / 100,
    rssMb: (Number(fields[21]) * 4096) / 1024 / 1024,
  }
}
