import { type ChildProcess, spawn } from 'node:child_process'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { closeLater } from './closing.ts'
import { createFolder } from './folder.ts'
import { linesOf } from './lines.ts'
import { until } from './wait.ts'

/** The built command line. */
export const BIN = fileURLToPath(new URL('../../dist/bin/sluice.js', import.meta.url))

export interface TestProcess {
  readonly child: ChildProcess
  stdout(): string
  stderr(): string
  /** The complete lines of standard output that are JSON. */
  lines(): Record<string, unknown>[]
  /** Resolves with the exit code. */
  ended(): Promise<number | null>
  kill(signal?: NodeJS.Signals): void
}

/** Returns the environment of a process that does not find the packages whose names begin so. */
export const without = (names: string) => ({
  NODE_OPTIONS: `--import ${fileURLToPath(new URL('without-packages.mjs', import.meta.url))}`,
  WITHOUT_PACKAGES: names,
})

const QUICK_WATCH = fileURLToPath(new URL('quick-watch.mjs', import.meta.url))

const running = new Set<ChildProcess>()
process.once('exit', () => {
  for (const child of running) child.kill('SIGKILL')
})

/** Kills a process at the end of the tests. */
export function withTests<T extends ChildProcess>(child: T): T {
  running.add(child)
  child.once('exit', () => running.delete(child))
  return child
}

/** Starts the command line as a process; `input` is its standard input. */
export function sluice(
  args: readonly string[],
  env: Record<string, string> = {},
  input: string | Buffer = '',
): TestProcess {
  const child = withTests(
    spawn(process.execPath, [BIN, ...args], {
      env: {
        ...process.env,
        ...env,
        NODE_OPTIONS: `--import ${QUICK_WATCH} ${env['NODE_OPTIONS'] ?? ''}`,
      },
      stdio: ['pipe', 'pipe', 'pipe'],
    }),
  )
  let out = ''
  let err = ''
  child.stdout.on('data', (chunk: Buffer) => (out += chunk.toString()))
  child.stderr.on('data', (chunk: Buffer) => (err += chunk.toString()))
  child.stdin.on('error', () => {})
  child.stdin.end(input)
  const ended = new Promise<number | null>((resolve) => child.once('close', resolve))
  closeLater(() => child.kill('SIGKILL'))
  return {
    child,
    stdout: () => out,
    stderr: () => err,
    lines: linesOf(() => out),
    ended: () => ended,
    kill: (signal = 'SIGKILL') => void child.kill(signal),
  }
}

/**
 * Returns the packages that processes with NODE_V8_COVERAGE=`folder` have loaded, in all their
 * threads; `pid` selects one process. A process writes its list when it exits.
 */
export function packagesLoaded(folder: string, pid: number | string = ''): Set<string> {
  const reports = readdirSync(folder).filter((name) => name.startsWith(`coverage-${pid}`))
  const urls = reports.flatMap((name) => {
    const { result } = JSON.parse(readFileSync(join(folder, name), 'utf8')) as {
      result: readonly { readonly url: string }[]
    }
    return result.map(({ url }) => url)
  })
  return new Set(urls.flatMap((url) => /.*\/node_modules\/([^/]+)/.exec(url)?.[1] ?? []))
}

const SIGNAL_EVERY_MS = 600

/** Sends signals until a process ends. Those within half a second count as one, and one at its very end would replace its exit code. */
export async function signalUntilEnd({ child }: TestProcess): Promise<void> {
  let nextAt = 0
  await until('it ends', () => {
    if (performance.now() >= nextAt) {
      child.kill('SIGTERM')
      nextAt = performance.now() + SIGNAL_EVERY_MS
    }
    return child.exitCode !== null || child.signalCode !== null
  })
}

export interface ServingProcess extends TestProcess {
  readonly port: number
  readonly adminPort: number
}

function launch(
  config: string | { readonly file: string },
  args: readonly string[],
  env: Record<string, string>,
): TestProcess {
  if (typeof config === 'string' && args.length === 0) {
    // Without flags, whose parser takes a tenth of the time of a start.
    const file = join(createFolder(), 'sluice.yaml')
    writeFileSync(file, config.replace('level: silent', 'level: info'))
    return sluice(['start'], { ...env, SLUICE_CONFIG: file })
  }
  const [file, input] = typeof config === 'string' ? ['-', config] : [config.file, '']
  return sluice(['start', '--config', file, '--log-level', 'info', ...args], env, input)
}

/** Starts a gateway process with YAML or a file, and waits until it serves. */
export async function serving(
  config: string | { readonly file: string },
  args: readonly string[] = [],
  env: Record<string, string> = {},
): Promise<ServingProcess> {
  const process = launch(config, args, env)
  const started = () => process.lines().find(({ msg }) => msg === 'gateway started')
  await until('the gateway serves', () => {
    if (process.child.exitCode !== null) throw new Error(`it ended: ${process.stderr()}${process.stdout()}`)
    return started() !== undefined
  })
  const { address, adminAddress } = started() as { address: string; adminAddress: string }
  return { ...process, port: Number(new URL(address).port), adminPort: Number(new URL(adminAddress).port) }
}
