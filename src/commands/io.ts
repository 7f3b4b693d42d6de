import type { Readable, Writable } from 'node:stream'
import { escaped } from '../observe/unsafe-characters.ts'
import type { Args } from './args.ts'

type ProcessPart = 'argv' | 'env' | 'exit' | 'listeners' | 'on' | 'once' | 'removeListener' | 'send'

/** The parts of the process that commands use; tests pass their own. */
export interface Io extends Pick<NodeJS.Process, ProcessPart> {
  readonly stdin: Readable & { readonly isTTY?: boolean }
  readonly stdout: Writable & Partial<Pick<NodeJS.WriteStream, 'isTTY' | 'columns' | 'rows'>>
  readonly stderr: Writable & { readonly isTTY?: boolean }
}

export function interruption(io: Io): AbortSignal {
  const ending = new AbortController()
  const end = (): void => ending.abort()
  io.once('SIGINT', end).once('SIGTERM', end)
  return ending.signal
}

/**
 * Gives the next one of a signal to a listener, in place of those that had it. They are removed last:
 * without any listener, Node.js would drop a signal that came while the process was busy.
 */
export function takeOver(io: Io, signal: NodeJS.Signals, listener: NodeJS.SignalsListener): void {
  const before = io.listeners(signal)
  io.once(signal, listener)
  for (const one of before) io.removeListener(signal, one)
}

/** Writes lines, escaped: callers choose some of the text in them, which must not move the cursor. */
export function writeLines(stream: Writable, text: string): void {
  stream.write(`${text.split('\n').map(escaped).join('\n')}\n`)
}

export function print<T>({ stdout }: Io, args: Args, value: T, show: (value: T) => string): void {
  writeLines(stdout, args['json'] === true ? JSON.stringify(value, undefined, 2) : show(value))
}
