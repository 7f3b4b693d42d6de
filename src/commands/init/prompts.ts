import { createInterface } from 'node:readline/promises'
import { checkServer, SERVER } from '../../config/sections/listeners.ts'
import { fetchedUrl, httpUrl, issuer, origin } from '../../config/sections/texts.ts'
import { stringThat, text } from '../../config/sections/values.ts'
import { parsePattern } from '../../downstream/router.ts'
import { type Args, type Io, textOf, UsageError } from '../io.ts'

/** Splits patterns of routes without a host, separated by ";". */
export const matchesOf = (text: string): readonly string[] =>
  text
    .trim()
    .split(/\s*;\s*/)
    .filter(Boolean)

const isRequest = (match: string) => /^([A-Z,]+ +)?\//.test(match) && typeof parsePattern(match) !== 'string'

const requests = stringThat((text) => {
  const invalid = matchesOf(text).find((match) => !isRequest(match))
  return invalid === undefined || `has "${invalid}", which is not a pattern such as GET /v3/status`
}, 'requests such as "GET /v3/status; GET /v3/terms"')

/** Kinds of services; the first has access tokens and is asked about them. */
const KINDS = ['open-banking', 'api', 'api-keys'] as const
/** The answer for counters in the process. */
export const MEMORY = 'memory'

interface Prompt {
  readonly question: string
  readonly schema: Pick<typeof origin, 'safeParse'>
  /** Value of an empty answer, and without a terminal. */
  readonly fallback?: string
  /** Derives the value from earlier ones, so that no prompt is needed. */
  readonly derive?: (settings: Args) => string | undefined
}

const PROMPTS = {
  for: {
    question:
      'Limits count clients with access tokens (open-banking), addresses (api) or values of X-Api-Key (api-keys):',
    schema: stringThat((text) => KINDS.some((kind) => kind === text), `one of ${KINDS.join(', ')}`),
    fallback: KINDS[0],
  },
  identity: {
    question:
      'URL of the identity backend, such as http://identity.internal:3000; empty if it is not behind this gateway:',
    schema: origin,
    fallback: '',
  },
  data: { question: 'URL of the API, such as http://data.internal:4000:', schema: origin },
  issuer: { question: 'Issuer (iss) of access tokens, such as https://id.example.com/oidc:', schema: issuer },
  audience: {
    question: 'Audience (aud) of access tokens, such as https://api.example.com:',
    schema: text('the audience'),
  },
  api: {
    question: 'URL of the API as callers reach it, such as https://api.example.com:',
    schema: fetchedUrl('the URL of the API as callers reach it, such as https://api.example.com'),
    derive: ({ audience }) => (httpUrl(String(audience)) === undefined ? undefined : String(audience)),
  },
  open: {
    question:
      'Requests to the API that need no token, such as GET /v3/status; GET /v3/terms; empty for none:',
    schema: requests,
    fallback: '',
  },
  redis: {
    question: 'URL of the Redis that counts, or memory if one process does:',
    schema: stringThat((text) => text === MEMORY || checkServer(text), `${SERVER}, or ${MEMORY}`),
    fallback: 'redis://127.0.0.1:6379',
  },
} satisfies Readonly<Record<string, Prompt>>

/** The values that make a configuration, by flag; some may be empty. */
export type InitSettings = Readonly<Record<keyof typeof PROMPTS, string>>

const TOKEN_FLAGS = ['identity', 'issuer', 'audience', 'api', 'open']
export const hasTokens = (settings: Args): boolean => settings['for'] === KINDS[0]

/** Returns the values of the flags, and on a terminal prompts for the others; throws a UsageError for invalid or missing flags. */
export async function promptForMissing(args: Args, io: Io): Promise<InitSettings> {
  const settings: Record<string, string | undefined> = {}
  const missing = Object.entries<Prompt>(PROMPTS).filter(([flag, prompt]) => {
    const text = textOf(args, flag)
    if (text === undefined) return true
    const { value, problem } = parse(prompt, text)
    if (value === undefined) throw new UsageError(`--${flag} ${problem}.`)
    settings[flag] = value
    return false
  })
  // A flag about tokens answers the first question.
  if (TOKEN_FLAGS.some((flag) => settings[flag] !== undefined)) settings['for'] ??= KINDS[0]
  const terminal = io.stdin.isTTY === true && io.stderr.isTTY === true ? openTerminal(io) : undefined
  try {
    for (const [flag, prompt] of missing)
      if (TOKEN_FLAGS.includes(flag) && !hasTokens(settings)) settings[flag] = ''
      else
        settings[flag] ??=
          prompt.derive?.(settings) ??
          (terminal ? await terminal.ask(prompt) : flag === 'for' ? undefined : prompt.fallback)
  } finally {
    terminal?.close()
  }
  const lacking = missing.filter(([flag]) => settings[flag] === undefined).map(([flag]) => `--${flag}`)
  // The API may follow from a missing audience.
  const needed = lacking.includes('--audience') ? lacking.filter((flag) => flag !== '--api') : lacking
  if (needed.length > 0) throw new UsageError(`Give ${needed.join(', ')}: init asks only on a terminal.`)
  const useless = hasTokens(settings) ? undefined : TOKEN_FLAGS.find((flag) => settings[flag] !== '')
  if (useless !== undefined) throw new UsageError(`--${useless} needs --for ${KINDS[0]}.`)
  assertApart(settings as InitSettings)
  return settings as InitSettings
}

function openTerminal({ stdin, stderr }: Io) {
  const terminal = createInterface({ input: stdin, output: stderr })
  // Buffers lines that arrive before their prompt, such as pasted ones, and ends with the input.
  const lines = terminal[Symbol.asyncIterator]()
  let isOpen = true
  terminal.once('close', () => (isOpen = false))
  async function ask(prompt: Prompt): Promise<string> {
    terminal.setPrompt(`${prompt.question}${prompt.fallback ? ` [${prompt.fallback}]` : ''} `)
    for (;;) {
      // After the end of the input, lines may remain, but prompt() throws in Node.js 22 and newer.
      if (isOpen) terminal.prompt()
      else stderr.write(`${terminal.getPrompt()}\n`)
      const { value: line, done = false } = await lines.next()
      if (done) {
        stderr.write('\n')
        throw new Error('The questions were not answered; nothing is written.')
      }
      const { value, problem } = parse(prompt, (line as string).trim())
      if (value !== undefined) return value
      stderr.write(`It ${problem}.\n`)
    }
  }
  return { ask, close: () => terminal.close() }
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
