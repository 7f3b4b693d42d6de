import { get } from 'node:http'
import { isMapping, type Mapping, readSource } from '../config/yaml/source.ts'
import { adminUrl } from './admin-url.ts'
import { type Given, type Io, MOST_PORT, textOf, wholeOf, writeLines } from './io.ts'

/** Longest that a gateway may take to answer; container engines wait three seconds or more. */
const TIMEOUT_MS = 2000
/** Longest answer that is shown. */
const MAX_CHARS = 500

/** Prints what a running gateway answers at `/healthz`, or with `--ready` at `/readyz`; throws unless that is 200. */
export async function run(given: Given, io: Io, timeoutMs = TIMEOUT_MS): Promise<void> {
  const { section, problem } = await readAdmin(given, io)
  const host = textOf(given, 'admin-host') ?? section['host']
  const hasPort = textOf(given, 'admin-port') !== undefined
  const port = hasPort ? wholeOf(given, 'admin-port', MOST_PORT, 1) : portOf(section['port'] ?? 9090)
  if (port === undefined) throw new Error('The admin port is not known. Give --admin-port.')
  const origin = adminUrl(typeof host === 'string' ? host : '127.0.0.1', port)
  const answer = await ask(`${origin}/${given['ready'] === true ? 'readyz' : 'healthz'}`, timeoutMs).catch(
    (error: Error) => {
      const why = problem === undefined ? '' : `; ${problem}`
      throw new Error(`no answer from ${origin}: ${error.message}${why}`, { cause: error })
    },
  )
  if (answer.status !== 200) throw new Error(`${origin} answers ${answer.status}: ${answer.text}`)
  writeLines(io.stdout, answer.text)
}

/**
 * Reads the section `admin` of the file, without checking the rest: what a running gateway rejects at a reload must not make
 * it seem dead. `problem` says why there is none.
 */
async function readAdmin(
  given: Given,
  { env }: Io,
): Promise<{ readonly section: Mapping; readonly problem?: string }> {
  const file = textOf(given, 'config') ?? env['SLUICE_CONFIG']
  if (file === undefined || file === '') return { section: {} }
  try {
    const { readText } = await import('../config/files.ts')
    const { value, mistakes } = readSource(await readText(file), env)
    const section = value?.['admin']
    if (isMapping(section)) return { section }
    return value === undefined
      ? { section: {}, problem: `${file}: ${mistakes[0]!.message}` }
      : { section: {} }
  } catch (error) {
    return { section: {}, problem: (error as Error).message }
  }
}

/** Undefined for what is no port to connect to, such as 0, which takes a free one. */
function portOf(port: unknown): number | undefined {
  const number = Number(port)
  return Number.isInteger(number) && number > 0 && number <= MOST_PORT ? number : undefined
}

function ask(url: string, timeoutMs: number): Promise<{ readonly status: number; readonly text: string }> {
  return new Promise((resolve, reject) => {
    const signal = AbortSignal.timeout(timeoutMs)
    const late = (error: Error): void =>
      reject(signal.aborted ? new Error(`none within ${timeoutMs / 1000} s`) : error)
    get(url, { signal, agent: false }, (response) => {
      let text = ''
      response.setEncoding('utf8')
      response.on('error', late)
      response.on('data', (more: string) => (text = (text + more).slice(0, MAX_CHARS)))
      response.on('end', () =>
        resolve({ status: response.statusCode!, text: text.trim().replaceAll(/\s+/g, ' ') }),
      )
    }).on('error', late)
  })
}
