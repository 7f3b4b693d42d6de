import { createInterface } from 'node:readline/promises'
import { fetchedUrl, httpUrl, issuer, origin } from '../../config/sections/addresses.ts'
import { redisUrl } from '../../config/sections/store.ts'
import { text, stringThat } from '../../config/sections/values.ts'
import { parsePattern } from '../../downstream/router.ts'
import { type Args, type Io, textOf, UsageError } from '../io.ts'

/** Requests without a host, as routes match them, with ";" between. */
const requests = stringThat((text) => {
  const bad = matchesOf(text).find(
    (match) => !/^([A-Z,]+ +)?\//.test(match) || typeof parsePattern(match) === 'string',
  )
  return bad === undefined || `has "${bad}", which is not a pattern such as GET /v3/status`
}, 'requests such as "GET /v3/status; GET /v3/terms"')

/** Returns the patterns of such a text. */
export const matchesOf = (text: string): readonly string[] =>
  text
    .split(';')
    .map((match) => match.trim())
    .filter(Boolean)

/** What a configuration is made of, as given or answered; empty where there is none. */
export type InitSettings = Readonly<Record<keyof typeof QUESTIONS, string>>

const QUESTIONS = {
  identity: {
    asks: 'Where does the identity backend answer, such as http://identity.internal:3000? Leave it empty if callers do not reach it through this gateway:',
    schema: origin,
    otherwise: '',
  },
  data: { asks: 'Where does the Data API answer, such as http://data.internal:4000?', schema: origin },
  issuer: {
    asks: 'Which issuer do access tokens name (iss), such as https://identity.example.com/oidc?',
    schema: issuer,
  },
  audience: {
    asks: 'Which audience do they name (aud), such as https://api.example.com?',
    schema: text('the audience'),
  },
  api: {
    asks: 'Where do callers reach the API, such as https://api.example.com?',
    schema: fetchedUrl('the URL of the API as callers reach it, such as https://api.example.com'),
    /** What it is without being asked for: the audience, where that is a URL. */
    follows: ({ audience }: Args) => (httpUrl(String(audience)) === undefined ? undefined : String(audience)),
  },
  open: {
    asks: 'Which requests to the API need no token, such as GET /v3/status; GET /v3/terms? Leave it empty for none:',
    schema: requests,
    otherwise: '',
  },
  redis: { asks: 'Which Redis counts?', schema: redisUrl, otherwise: 'redis://127.0.0.1:6379' },
} as const
type Prompt = (typeof QUESTIONS)[keyof typeof QUESTIONS]

/** Returns what the flags give, and on a terminal asks for the rest; throws a UsageError that names what is wrong or missing. */
export async function promptForMissing(args: Args, io: Io): Promise<InitSettings> {
  const answers: Record<string, string> = {}
  const missing: (readonly [flag: string, question: Prompt])[] = []
  for (const [flag, question] of Object.entries(QUESTIONS)) {
    const text = textOf(args, flag)
    if (text === undefined) {
      missing.push([flag, question])
      continue
    }
    const read = readAnswer(question, text)
    if ('problem' in read) throw new UsageError(`--${flag} ${read.problem}.`)
    answers[flag] = read.answer
  }
  if (io.stdin.isTTY === true && io.stderr.isTTY === true) await askFor(missing, answers, io)
  else {
    const flags: string[] = []
    for (const [flag, question] of missing) {
      const otherwise = 'otherwise' in question ? question.otherwise : followed(question, answers)
      if (otherwise !== undefined) answers[flag] = otherwise
      else if (!('follows' in question) || answers['audience'] !== undefined) flags.push(`--${flag}`)
    }
    if (flags.length > 0) throw new UsageError(`Give ${flags.join(', ')}: there is no terminal to ask on.`)
  }
  refuseSamePlace(answers as InitSettings)
  return answers as InitSettings
}

async function askFor(
  missing: readonly (readonly [flag: string, question: Prompt])[],
  answers: Record<string, string>,
  { stdin, stderr }: Io,
): Promise<void> {
  const terminal = createInterface({ input: stdin, output: stderr })
  // Keeps lines that come before they are asked for, such as pasted ones, and ends with the input.
  const lines = terminal[Symbol.asyncIterator]()
  let isOpen = true
  terminal.once('close', () => (isOpen = false))
  try {
    for (const [flag, question] of missing) {
      const follows = followed(question, answers)
      if (follows !== undefined) answers[flag] = follows
      terminal.setPrompt(
        `${question.asks}${'otherwise' in question && question.otherwise !== '' ? ` [${question.otherwise}]` : ''} `,
      )
      while (answers[flag] === undefined) {
        // Lines may be left where the input has ended, and there Node.js 22 and newer throw.
        if (isOpen) terminal.prompt()
        else stderr.write(`${terminal.getPrompt()}\n`)
        const { value, done = false } = await lines.next()
        if (done) {
          stderr.write('\n')
          throw new Error('The questions were not answered; nothing is written.')
        }
        const read = readAnswer(question, (value as string).trim())
        if ('answer' in read) answers[flag] = read.answer
        else stderr.write(`It ${read.problem}.\n`)
      }
    }
  } finally {
    terminal.close()
  }
}

function followed(question: Prompt, answers: Args): string | undefined {
  return 'follows' in question ? question.follows(answers) : undefined
}

/** Throws a UsageError where the open routes of the issuer would take the API too. */
function refuseSamePlace({ identity, issuer, api }: InitSettings): void {
  if (identity === '') return
  const [{ hostname, pathname: path }, at] = [new URL(api), new URL(issuer)]
  const open = at.pathname.replace(/\/*$/, '/').toLowerCase()
  if (hostname !== at.hostname || !`${path}/`.toLowerCase().startsWith(open)) return
  throw new UsageError(
    `The issuer and the API share the host ${hostname}, and no path of the issuer tells them apart: the API would be open. Give the API a host of its own (--api), or write the routes by hand, as in config/sluice.yaml.`,
  )
}

/** Checks an answer as the configuration will; an empty one means the default. */
function readAnswer(question: Prompt, text: string): { answer: string } | { problem: string } {
  const given = text === '' && 'otherwise' in question ? question.otherwise : text
  if (given === '' && 'otherwise' in question) return { answer: '' }
  const read = question.schema.safeParse(given)
  return read.success ? { answer: read.data } : { problem: read.error.issues[0]!.message }
}
