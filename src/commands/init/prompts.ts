import { createInterface } from 'node:readline/promises'
import { checkServer, SERVER } from '../../config/sections/listeners.ts'
import { fetchedUrl, isHttpUrl, issuer, origin } from '../../config/sections/texts.ts'
import { choice, stringThat, text } from '../../config/sections/values.ts'
import { KINDS, PROVIDERS } from '../choices.ts'
import { initFlags } from '../flags.ts'
import { toError } from '../../runtime/to-error.ts'
import { type Args, textOf, UsageError } from '../args.ts'
import type { Io } from '../io.ts'

export const matchesOf = (text: string): readonly string[] =>
  text.split(';').flatMap((match) => match.trim() || [])

export const MEMORY = 'memory'

/** The description of its flag is the question. */
interface Prompt {
  readonly schema: Pick<typeof origin, 'safeParse'>
  /** Value of an empty answer, and without a terminal. */
  readonly fallback?: string
}

const PROMPTS = {
  for: { schema: choice(KINDS), fallback: KINDS[0] },
  identity: { schema: origin, fallback: '' },
  data: { schema: origin },
  provider: { schema: choice(PROVIDERS), fallback: 'other' },
  issuer: { schema: issuer },
  audience: { schema: text('the audience') },
  api: { schema: fetchedUrl('the URL of the API, such as https://api.example.com') },
  open: { schema: text('requests such as "GET /v3/status; GET /v3/terms"'), fallback: '' },
  redis: {
    schema: stringThat((text) => text === MEMORY || checkServer(text), `${SERVER}, or ${MEMORY}`),
    fallback: 'redis://127.0.0.1:6379',
  },
} satisfies Readonly<Record<string, Prompt>>

export type InitSettings = Readonly<Record<keyof typeof PROMPTS, string>>

const TOKEN_FLAGS = new Set(['identity', 'provider', 'issuer', 'audience', 'api', 'open'])
export const hasTokens = (settings: Args): boolean => settings['for'] === KINDS[0]

const OTHER_KINDS = 'For limits by address or API key, give --for api or --for api-keys, and only --data.'

/**
 * Returns the values of the flags, and on a terminal prompts for the others; throws a UsageError
 * for invalid or missing flags.
 */
export async function promptForMissing(args: Args, io: Io): Promise<InitSettings> {
  const settings: Record<string, string> = {}
  const terminal = io.stdin.isTTY === true && io.stderr.isTTY === true ? openTerminal(io) : undefined
  const missing: string[] = []
  try {
    for (const [flag, prompt] of Object.entries<Prompt>(PROMPTS)) {
      const isForTokens = TOKEN_FLAGS.has(flag)
      // The audience is often the URL of the API.
      const isAudience = flag === 'api' && isHttpUrl(settings['audience'] ?? '')
      const text = textOf(args, flag) ?? (isAudience ? settings['audience'] : undefined)
      if (isForTokens && !hasTokens(settings)) {
        if (text) throw new UsageError(`--${flag} needs --for ${KINDS[0]}.`)
        settings[flag] = ''
      } else if (text !== undefined) settings[flag] = parse(prompt, text, `--${flag}`)
      else {
        const value = (await terminal?.ask(flag, prompt)) ?? prompt.fallback
        if (value === undefined) missing.push(`--${flag}`)
        else settings[flag] = value
      }
    }
  } finally {
    terminal?.close()
  }
  if (missing.length > 0) {
    const kinds = args['for'] === undefined && missing.includes('--issuer') ? ` ${OTHER_KINDS}` : ''
    throw new UsageError(`Give ${missing.join(', ')}: no terminal to ask.${kinds}`)
  }
  return settings as InitSettings
}

function openTerminal({ stdin, stderr }: Io) {
  // Without an output, the terminal itself edits the line.
  const terminal = createInterface({ input: stdin })
  // Buffers lines that arrive before their prompt, such as pasted ones, and ends with the input.
  const lines = terminal[Symbol.asyncIterator]()
  async function ask(flag: string, prompt: Prompt): Promise<string> {
    const { describe } = initFlags[flag as keyof typeof PROMPTS]
    for (;;) {
      stderr.write(`${describe}${prompt.fallback ? ` [${prompt.fallback}]` : ''}: `)
      const { value: line, done = false } = await lines.next()
      if (done) throw new Error('The questions were not answered; nothing was written.')
      try {
        return parse(prompt, (line as string).trim(), 'It')
      } catch (error) {
        stderr.write(`${toError(error).message}\n`)
      }
    }
  }
  return { ask, close: () => terminal.close() }
}

/**
 * Checks a value as the configuration will; an empty one means the fallback. Throws a UsageError
 * that begins with `subject`.
 */
function parse({ schema, fallback }: Prompt, text: string, subject: string): string {
  const value = text || fallback
  if (value === '') return value
  const { data, error } = schema.safeParse(value ?? text)
  if (error) throw new UsageError(`${subject} ${error.issues[0]!.message}.`)
  return data
}
