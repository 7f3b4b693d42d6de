/** The environment of a benchmark: child processes that end with it, free ports, an upstream, a Redis. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { type AddressInfo, connect, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** The CPU of the contenders, and the CPU of wrk, the upstream and Redis. */
export const PROXY_CPU = 0
export const LOAD_CPU = 1
const TICKS_PER_S = 100

/** The folder for all files that the benchmark writes. */
export const folder = mkdtempSync(join(tmpdir(), 'sluice-bench-'))
const children = new Set<ChildProcess>()

process.once('exit', () => {
  for (const child of children) child.kill('SIGKILL')
  rmSync(folder, { recursive: true, force: true })
})
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(130))

/** Throws an error with the missing commands. */
export function requireCommands(...commands: string[]): void {
  const missing = commands.filter((command) => spawnSync('which', [command]).status !== 0)
  if (missing.length === 0) return
  throw new Error(
    `missing: ${missing.join(', ')} (Debian: apt-get install wrk nginx-light redis-server util-linux)`,
  )
}

export interface Command {
  readonly command: string
  readonly args: readonly string[]
  readonly env?: Readonly<Record<string, string>>
  /** The file that gets standard output, which is ignored otherwise. */
  readonly stdoutFile?: string
}

/** Starts a process on some CPUs; it is killed when the benchmark ends. */
export function startOn(
  cpus: number | string,
  { command, args, env, stdoutFile }: Command,
  stdout: 'pipe' | 'ignore',
): ChildProcess {
  const child = spawn('taskset', ['-c', String(cpus), command, ...args], {
    // Descriptor 3: bench/log-to-null.mjs.
    stdio: [
      'ignore',
      stdoutFile === undefined ? stdout : openSync(stdoutFile, 'w'),
      'inherit',
      openSync('/dev/null', 'w'),
    ],
    env: { ...process.env, ...env },
  })
  children.add(child)
  child.once('exit', () => children.delete(child))
  return child
}

/** Starts a server and resolves once it listens on `port`. */
export async function serve(cpus: number | string, port: number, command: Command): Promise<ChildProcess> {
  const child = startOn(cpus, command, 'ignore')
  for (let tries = 0; tries < 600; tries++) {
    if (child.exitCode !== null) break
    if (await listens(port)) return child
    await sleep(50)
  }
  child.kill('SIGKILL')
  throw new Error(`${command.command} does not listen on ${port}`)
}

/** Ends a process, with SIGKILL after `graceMs`. */
export async function stop(child: ChildProcess, graceMs = 2000): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const ended = new Promise((resolve) => child.once('exit', resolve))
  const timer = setTimeout(() => child.kill('SIGKILL'), graceMs)
  child.kill('SIGTERM')
  await ended
  clearTimeout(timer)
}

export const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))

function listens(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => {
      socket.destroy()
      resolve(true)
    }).once('error', () => resolve(false))
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

/** Writes the configuration of an nginx of one process, with `main` before and `http` in its http block. */
export function nginx(name: string, main: string, http: string): Command {
  const home = join(folder, name)
  mkdirSync(home)
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((of) => `${of}_temp_path ${of};`)
  writeFileSync(
    join(home, 'nginx.conf'),
    `${main}
daemon off; master_process off; pid nginx.pid; error_log error.log crit;
events { worker_connections 4096; }
http {
  ${temporary.join(' ')}
  access_log off; tcp_nodelay on; keepalive_requests 1000000000; keepalive_timeout 1h;
  ${http}
}
`,
  )
  return {
    command: 'nginx',
    args: ['-p', home, '-c', join(home, 'nginx.conf'), '-e', join(home, 'error.log')],
  }
}

/** Runs a command, and another once the first listens on `port`; they end together. */
export function both(first: Command, port: number, second: Command): Command {
  const [a, b] = [first, second].map(({ command, args }) =>
    [command, ...args].map((word) => `'${word}'`).join(' '),
  )
  const listening = `until (: < /dev/tcp/127.0.0.1/${port}) 2>/dev/null; do sleep 0.1; done`
  const script = `trap 'kill $(jobs -p); wait' TERM; ${a} & ${listening}; ${b} & wait`
  return { command: 'bash', args: ['-c', script], env: { ...first.env, ...second.env } }
}

/** Starts the upstream: 1 KiB of JSON for any request, 64 kB and 1 MB under /64k and /1m. */
export async function startUpstream(): Promise<number> {
  const port = await freePort()
  const files = join(folder, 'files')
  mkdirSync(files)
  writeFileSync(join(files, '64k'), 'x'.repeat(65_536))
  writeFileSync(join(files, '1m'), 'x'.repeat(1_048_576))
  const json = `{"data":"${'x'.repeat(1013)}"}`
  const command = nginx(
    'upstream',
    '',
    `default_type application/json; open_file_cache max=10; sendfile on;
  server {
    listen 127.0.0.1:${port};
    location / { return 200 '${json}'; }
    location ~ ^/(64k|1m)$ { root ${files}; }
  }`,
  )
  await serve(LOAD_CPU, port, command)
  return port
}

export async function startRedis(): Promise<number> {
  const port = await freePort()
  const args = `--port ${port} --bind 127.0.0.1 --save  --appendonly no --dir ${folder}`.split(' ')
  await serve(LOAD_CPU, port, { command: 'redis-server', args })
  return port
}

export interface Usage {
  /** Processor time since the start. */
  readonly cpuS: number
  readonly rssMb: number
}

/** Processor time and resident memory of a process and its children, from /proc. */
export function usage(pid: number): Usage {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean)
  return [usageAlone(pid), ...children.map((child) => usage(Number(child)))].reduce((sum, one) => ({
    cpuS: sum.cpuS + one.cpuS,
    rssMb: sum.rssMb + one.rssMb,
  }))
}

function usageAlone(pid: number): Usage {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return {
    cpuS: (Number(fields[11]) + Number(fields[12])) / TICKS_PER_S,
    rssMb: (Number(fields[21]) * 4096) / 1024 / 1024,
  }
}

/** Seconds that a CPU was busy, including time stolen by other machines on the host. */
export function busyS(cpu: number): number {
  const counts = new RegExp(`^cpu${cpu} (.*)$`, 'm').exec(readFileSync('/proc/stat', 'utf8'))![1]!.split(' ')
  const [user, nice, system, , , , , steal] = counts.map(Number)
  return (user! + nice! + system! + steal!) / TICKS_PER_S
}
