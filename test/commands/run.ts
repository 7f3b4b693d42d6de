import { EventEmitter } from 'node:events'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Readable, Writable } from 'node:stream'
import { expect, it } from 'vitest'
import { main } from '../../src/commands/cli.ts'
import type { Io } from '../../src/commands/io.ts'
import { createFolder } from '../helpers/folder.ts'

export interface Ended {
  readonly code: number
  readonly stdout: string
  readonly stderr: string
}

interface IoOptions {
  readonly stdin?: string | Buffer
  readonly env?: Readonly<Record<string, string>>
  readonly isTTY?: boolean
}

/** Creates the process of a command line, with its output as text. */
export function createIo({ stdin = '', env = {}, isTTY = false }: IoOptions = {}) {
  const [stdout, stderr] = [createSink(), Object.assign(createSink(), { isTTY })]
  const io = Object.assign(new EventEmitter(), {
    argv: ['node', '/usr/local/bin/sluice'],
    env,
    stdin: Object.assign(Readable.from([Buffer.from(stdin)], { objectMode: false }), { isTTY }),
    stdout,
    stderr,
  })
  return { io, stdout, stderr }
}

/** Runs a command line in this process. */
export async function sluice(args: readonly string[], options?: IoOptions): Promise<Ended> {
  const { io, stdout, stderr } = createIo(options)
  const code = await main(args, io as unknown as Io)
  return { code, stdout: stdout.text(), stderr: stderr.text() }
}

function createSink() {
  let text = ''
  const sink = new Writable({
    write(chunk: Buffer, _, done) {
      text += chunk.toString()
      done()
    },
  })
  return Object.assign(sink, { text: () => text })
}

const folder = createFolder()
let files = 0

/** Writes this text or these bytes to a new file, and returns its path. */
export function fileOf(content: string | Buffer, extension = 'yaml'): string {
  const file = join(folder, `${++files}.${extension}`)
  writeFileSync(file, content)
  return file
}

/** Tests that each of these command lines exits with 64 and prints only this message. */
export function itEndsWrongUsage(
  cases: readonly (readonly [args: readonly string[], message: string])[],
): void {
  it.for(cases)('exits with 64 for wrong usage: %j', async ([args, message]) => {
    const ended = await sluice(args)
    expect(ended).toEqual({
      code: 64,
      stdout: '',
      stderr: expect.stringMatching(/^sluice: .*\nSee "sluice [a-z ]*--help"\.\n$/s) as string,
    })
    expect(ended.stderr).toContain(`sluice: ${message}\n`)
  })
}
