import { createInterface } from 'node:readline/promises'
import { checkServer, SERVER } from '../../config/sections/listeners.ts'
import { fetchedUrl, httpUrl, issuer, origin } from '../../config/sections/texts.ts'
import { stringThat, text } from '../../config/sections/values.ts'
import { parsePattern } from '../../downstream/router.ts'
import { type Args, type Io, KINDS, textOf, UsageError } from '../io.ts'

export const matchesOf = (text: string): readonly string[] =>
  text.split(';').flatMap((match) => match.trim() || [])

const isRequest = (match: string) => /^([A-Z,]+ +)?\//.test(match) && typeof parsePattern(match) !== 'string'

const requests = stringThat((text) => {
  const invalid = matchesOf(text).find((match) => !isRequest(match))
  return invalid === undefined || `has "${invalid}", which is not a pattern such as GET /v3/status`
}, 'requests such as "GET /v3/status; GET /v3/terms"')

export const MEMORY = 'memory'

interface Prompt {
  readonly question: string
  readonly schema: Pick<typeof origin, 'safeParse'>
  /** Value of an empty answer, and without a terminal. */
  readonly fallback?: string
}

const PROMPTS = {
  for: {
    question: 'Limit clients by token (open-banking), address (api) or X-Api-Key (api-keys):',
    schema: stringThat((text) => KINDS.some((kind) => kind === text), `one of ${KINDS.join(', ')}`),
    fallback: KINDS[0],
  },
  identity: {
    question: 'URL of the identity backend (http://identity:3000), empty if not behind the gateway:',
    schema: origin,
    fallback: '',
  },
  data: { question: 'URL of the API, such as http://data.internal:4000:', schema: origin },
  issuer: { question: 'Issuer (iss) of tokens, such as https://id.example.com:', schema: issuer },
  audience: { question: 'Audience (aud), often the URL of the API:', schema: text('the audience') },
  api: {
    question: 'URL of the API as callers reach it, such as https://api.example.com:',
    schema: fetchedUrl('the URL of the API as callers reach it, such as https://api.example.com'),
  },
  open: {
    question: 'Requests that need no token, such as GET /v3/status; GET /v3/terms; empty for none:',
    schema: requests,
    fallback: '',
  },
  redis: {
    question: 'URL of the Redis that counts, or memory if one process does:',
    schema: stringThat((text) => text === MEMORY || checkServer(text), `${SERVER}, or ${MEMORY}`),
    fallback: 'redis://127.0.0.1:6379',
  },
} satisfies Readonly<Record<string, Prompt>>

export type InitSettings = Readonly<Record<keyof typeof PROMPTS, string>>

const TOKEN_FLAGS = ['identity', 'issuer', 'audience', 'api', 'open']
export const hasTokens = (settings: Args): boolean => settings['for'] === KINDS[0]

/**
 * Returns the values of the flags, and on a terminal prompts for the others; throws a UsageError
 * for invalid or missing flags.
 */
export async function promptForMissing(args: Args, io: Io): Promise<InitSettings> {
  const prompts = Object.entries<Prompt>(PROMPTS)
  const settings: Record<string, string> = {}
  for (const [flag, prompt] of prompts) {
    const text = textOf(args, flag)
    if (text !== undefined) settings[flag] = parse(prompt, text, `--${flag}`)
  }
  // A flag about tokens answers the first question.
  if (TOKEN_FLAGS.some((flag) => flag in settings)) settings['for'] ??= KINDS[0]
  const tokenFlag = TOKEN_FLAGS.find((flag) => settings[flag])
  if (tokenFlag !== undefined && !hasTokens(settings))
    throw new UsageError(`--${tokenFlag} needs --for ${KINDS[0]}.`)

  const terminal = io.stdin.isTTY === true && io.stderr.isTTY === true ? openTerminal(io) : undefined
  const missing: string[] = []
  try {
    for (const [flag, prompt] of prompts) {
      if (TOKEN_FLAGS.includes(flag) && !hasTokens(settings)) settings[flag] = ''
      // The audience is often the URL of the API.
      if (flag === 'api' && httpUrl(settings['audience'] ?? '')) settings[flag] ??= settings['audience']!
      if (terminal !== undefined) settings[flag] ??= await terminal.ask(prompt)
      else if (flag !== 'for' && prompt.fallback !== undefined) settings[flag] ??= prompt.fallback
      // The API may follow from a missing audience.
      if (!(flag in settings) && (flag !== 'api' || 'audience' in settings)) missing.push(`--${flag}`)
    }
  } finally {
    terminal?.close()
  }
  if (missing.length > 0) throw new UsageError(`Give ${missing.join(', ')}: no terminal to ask.`)
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
      try {
        return parse(prompt, (line as string).trim(), 'It')
      } catch (error) {
        stderr.write(`${(error as Error).message}\n`)
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
