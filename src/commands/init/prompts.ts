import { createInterface } from 'node:readline/promises'
import { fetchedUrl, httpUrl, issuer, origin } from '../../config/sections/addresses.ts'
import { redisUrl } from '../../config/sections/store.ts'
import { stringThat, text } from '../../config/sections/values.ts'
import { parsePattern } from '../../downstream/router.ts'
import { type Args, type Io, textOf, UsageError } from '../io.ts'

/** Splits patterns of routes without a host, separated by ";". */
export const matchesOf = (text: string): readonly string[] =>
  text
    .split(';')
    .map((match) => match.trim())
    .filter(Boolean)

const requests = stringThat((text) => {
  const invalid = matchesOf(text).find(
    (match) => !/^([A-Z,]+ +)?\//.test(match) || typeof parsePattern(match) === 'string',
  )
  return invalid === undefined || `has "${invalid}", which is not a pattern such as GET /v3/status`
}, 'requests such as "GET /v3/status; GET /v3/terms"')

interface Prompt {
  readonly question: string
  readonly schema: Pick<typeof origin, 'safeParse'>
  /** Value of an empty answer, and without a terminal. */
  readonly fallback?: string
  /** Derives the value from earlier ones, so that no prompt is needed. */
  readonly derive?: (settings: Args) => string | undefined
}

const PROMPTS = {
  identity: {
    question:
      'Where does the identity backend answer, such as http://identity.internal:3000? Leave it empty if callers do not reach it through this gateway:',
    schema: origin,
    fallback: '',
  },
  data: { question: 'Where does the Data API answer, such as http://data.internal:4000?', schema: origin },
  issuer: {
    question: 'Which issuer do access tokens name (iss), such as https://identity.example.com/oidc?',
    schema: issuer,
  },
  audience: {
    question: 'Which audience do they name (aud), such as https://api.example.com?',
    schema: text('the audience'),
  },
  api: {
    question: 'Where do callers reach the API, such as https://api.example.com?',
    schema: fetchedUrl('the URL of the API as callers reach it, such as https://api.example.com'),
    derive: ({ audience }) => (httpUrl(String(audience)) === undefined ? undefined : String(audience)),
  },
  open: {
    question:
      'Which requests to the API need no token, such as GET /v3/status; GET /v3/terms? Leave it empty for none:',
    schema: requests,
    fallback: '',
  },
  redis: { question: 'Which Redis counts?', schema: redisUrl, fallback: 'redis://127.0.0.1:6379' },
} satisfies Readonly<Record<string, Prompt>>

/** The values that make a configuration, by flag; some may be empty. */
export type InitSettings = Readonly<Record<keyof typeof PROMPTS, string>>
type Missing = readonly (readonly [flag: string, prompt: Prompt])[]

/** Returns the values of the flags, and on a terminal prompts for the others; throws a UsageError for invalid or missing flags. */
export async function promptForMissing(args: Args, io: Io): Promise<InitSettings> {
  const settings: Record<string, string> = {}
  const missing = Object.entries<Prompt>(PROMPTS).filter(([flag, prompt]) => {
    const text = textOf(args, flag)
    if (text === undefined) return true
    const { value, problem } = parse(prompt, text)
    if (value === undefined) throw new UsageError(`--${flag} ${problem}.`)
    settings[flag] = value
    return false
  })
  if (io.stdin.isTTY === true && io.stderr.isTTY === true) await ask(missing, settings, io)
  else useFallbacks(missing, settings)
  assertApart(settings as InitSettings)
  return settings as InitSettings
}

function useFallbacks(missing: Missing, settings: Record<string, string>): void {
  const flags: string[] = []
  for (const [flag, { fallback, derive }] of missing) {
    const value = fallback ?? derive?.(settings)
    if (value !== undefined) settings[flag] = value
    // A missing audience may be all that `derive` lacks.
    else if (!derive || settings['audience'] !== undefined) flags.push(`--${flag}`)
  }
  if (flags.length > 0) throw new UsageError(`Give ${flags.join(', ')}: init asks only on a terminal.`)
}

async function ask(missing: Missing, settings: Record<string, string>, { stdin, stderr }: Io): Promise<void> {
  const terminal = createInterface({ input: stdin, output: stderr })
  // Buffers lines that arrive before their prompt, such as pasted ones, and ends with the input.
  const lines = terminal[Symbol.asyncIterator]()
  let isOpen = true
  terminal.once('close', () => (isOpen = false))
  try {
    for (const [flag, prompt] of missing) {
      let answer = prompt.derive?.(settings)
      terminal.setPrompt(`${prompt.question}${prompt.fallback ? ` [${prompt.fallback}]` : ''} `)
      while (answer === undefined) {
        // After the end of the input, lines may remain, but prompt() throws in Node.js 22 and newer.
        if (isOpen) terminal.prompt()
        else stderr.write(`${terminal.getPrompt()}\n`)
        const { value: line, done = false } = await lines.next()
        if (done) {
          stderr.write('\n')
          throw new Error('The questions were not answered; nothing is written.')
        }
        const { value, problem } = parse(prompt, (line as string).trim())
        if (problem !== undefined) stderr.write(`It ${problem}.\n`)
        answer = value
      }
      settings[flag] = answer
    }
  } finally {
    terminal.close()
  }
}

/** Throws a UsageError if the open routes of the issuer would match the API too. */
function assertApart({ identity, issuer, api }: InitSettings): void {
  if (identity === '') return
  const [{ hostname, pathname }, from] = [new URL(api), new URL(issuer)]
  const open = from.pathname.replace(/\/*$/, '/').toLowerCase()
  if (hostname !== from.hostname || !`${pathname}/`.toLowerCase().startsWith(open)) return
  throw new UsageError(
    `The issuer and the API share the host ${hostname}, and no path distinguishes them: the API would be open. Give the API a host of its own (--api), or write the routes by hand, as in config/sluice.yaml.`,
  )
}

/** Checks a value as the configuration will; an empty one means the fallback. */
function parse({ schema, fallback }: Prompt, text: string): { value?: string; problem?: string } {
  const value = text || fallback
  if (value === '') return { value }
  const { data, error } = schema.safeParse(value ?? text)
  return error ? { problem: error.issues[0]!.message } : { value: data }
}
