/** Measures the garbage of requests by V8's own trace, which is far less noisy than times. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Contender, ROOT } from './contenders.ts'
import { type Command, folder, stop } from './environment.ts'
import { type Bench, measure, runProven } from './measure.ts'

/** Figures of a request, and of the collections while requests were served. */
export interface Garbage {
  /** Bytes allocated for a request, and bytes of it that survived two scavenges and were promoted to the old space. */
  readonly allocatedBytes: number
  readonly promotedBytes: number
  /** Mean time of a scavenge, in milliseconds. */
  readonly scavengeMs: number
  /** Full collections in 100,000 requests. */
  readonly fullCollections: number
}

/** Flags that make V8 trace each collection, as name=value pairs or, from Node.js 26 on, as JSON. */
const TRACE = ['--trace-gc', '--trace-gc-nvp', '--import', join(ROOT, 'bench/log-to-null.mjs')]

let traces = 0

/** Runs a contender on Node.js under load for some seconds after its warm-up. */
export async function measureGarbage(bench: Bench, contender: Contender, seconds: number): Promise<Garbage> {
  const stdoutFile = join(folder, `trace-${traces++}.txt`)
  const start = async (port: number): Promise<Command> => {
    const command = await contender.start(port)
    return { ...command, args: [...TRACE, ...command.args], stdoutFile }
  }
  const startedAt = performance.now()
  const running = await runProven(bench, { ...contender, start })
  const fromMs = performance.now() - startedAt
  const { requests } = await measure(bench, running, seconds)
  const untilMs = performance.now() - startedAt
  // V8 writes what its buffer holds at the exit.
  await stop(running.child, 10_000)
  const all = parseTrace(readFileSync(stdoutFile, 'utf8'))
  return summarize(
    all.filter(({ atMs }) => atMs >= fromMs && atMs < untilMs),
    requests,
  )
}

interface Collection {
  readonly atMs: number
  readonly isFull: boolean
  readonly pauseMs: number
  readonly allocated: number
  readonly promoted: number
}

function parseTrace(text: string): readonly Collection[] {
  return [...text.matchAll(/^\[\d+:\S+\] +(\d+) ms: (.*\bpause\b.*)$/gm)].map(([, atMs, fields]) => {
    const valueOf = (name: string): string =>
      new RegExp(`(?:^|[ ,{])"?${name}"?[=:]"?([\\w.]+)`).exec(fields!)?.[1] ?? '0'
    return {
      atMs: Number(atMs),
      isFull: valueOf('gc') !== 's',
      pauseMs: Number(valueOf('pause')),
      allocated: Number(valueOf('allocated')),
      promoted: Number(valueOf('promoted')),
    }
  })
}

function summarize(collections: readonly Collection[], requests: number): Garbage {
  const sum = (figure: (one: Collection) => number): number =>
    collections.reduce((total, one) => total + figure(one), 0)
  const scavenges = collections.filter(({ isFull }) => !isFull)
  return {
    allocatedBytes: sum(({ allocated }) => allocated) / requests,
    promotedBytes: sum(({ promoted }) => promoted) / requests,
    scavengeMs: scavenges.reduce((total, { pauseMs }) => total + pauseMs, 0) / Math.max(1, scavenges.length),
    fullCollections: ((collections.length - scavenges.length) / requests) * 100_000,
  }
}
