import { createInterface } from 'node:readline/promises'
import { issuer, origin } from '../../config/sections/addresses.ts'
import { redisUrl } from '../../config/sections/store.ts'
import { text } from '../../config/sections/values.ts'
import { type Given, type Io, textOf, UsageError } from '../io.ts'

/** What a configuration is made of, as given or answered. */
export type Answers = Readonly<Record<keyof typeof QUESTIONS, string>>

const QUESTIONS = {
  identity: {
    asks: 'Where does the identity backend answer, such as http://identity.internal:3000?',
    schema: origin,
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
  redis: { asks: 'Which Redis counts?', schema: redisUrl, otherwise: 'redis://127.0.0.1:6379' },
} as const
type Question = (typeof QUESTIONS)[keyof typeof QUESTIONS]

/** Returns what the flags give, and on a terminal asks for the rest; throws a UsageError that names what is wrong or missing. */
export async function answersOf(given: Given, io: Io): Promise<Answers> {
  const answers: Record<string, string> = {}
  const missing: (readonly [flag: string, question: Question])[] = []
  for (const [flag, question] of Object.entries(QUESTIONS)) {
    const text = textOf(given, flag)
    if (text === undefined) {
      missing.push([flag, question])
      continue
    }
    const read = readAnswer(question, text)
    if ('problem' in read) throw new UsageError(`--${flag} ${read.problem}.`)
    answers[flag] = read.answer
  }
  if (missing.length === 0) return answers as Answers
  if (io.stdin.isTTY === true && io.stderr.isTTY === true) await askFor(missing, answers, io)
  else {
    const flags = missing.flatMap(([flag, question]) => ('otherwise' in question ? [] : [`--${flag}`]))
    if (flags.length > 0) throw new UsageError(`Give ${flags.join(', ')}: there is no terminal to ask on.`)
    for (const [flag, question] of missing) if ('otherwise' in question) answers[flag] = question.otherwise
  }
  return answers as Answers
}

async function askFor(
  missing: readonly (readonly [flag: string, question: Question])[],
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
      terminal.setPrompt(`${question.asks}${'otherwise' in question ? ` [${question.otherwise}]` : ''} `)
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

/** Checks an answer as the configuration will; an empty one means the default. */
function readAnswer(question: Question, text: string): { answer: string } | { problem: string } {
  const given = text === '' && 'otherwise' in question ? question.otherwise : text
  const read = question.schema.safeParse(given)
  return read.success ? { answer: read.data } : { problem: read.error.issues[0]!.message }
}
