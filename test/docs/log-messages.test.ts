import { describe, expect, it } from 'vitest'
import { fileText, filesIn } from '../helpers/repository.ts'

/** docs/log-messages.md and the source must list the same messages, at the same levels. */
const doc = fileText('docs/log-messages.md')

const sources = ['src', 'bin'].flatMap((folder) => filesIn(folder, '.ts').map(fileText))

const CALL = /\b(?:log|auditLog)\??\.(trace|debug|info|warn|error|fatal)\(/g
/** A string, a template or a comment, in which an argument does not end. */
const OPAQUE = /^(?:'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`(?:\\.|[^`\\])*`|\/\/.*\n)/

/** Returns the last argument of the call whose arguments begin at `from`. */
function lastArgument(text: string, from: number): string {
  const args = ['']
  let depth = 1
  for (let at = from; at < text.length; at++) {
    const [opaque] = OPAQUE.exec(text.slice(at)) ?? []
    const char = text[at]!
    if ('([{'.includes(char)) depth++
    if (')]}'.includes(char) && --depth === 0) break
    if (char === ',' && depth === 1) args.push('')
    else if (opaque === undefined) args[args.length - 1] += char
    else if (!opaque.startsWith('//')) args[args.length - 1] += opaque
    if (opaque !== undefined) at += opaque.length - 1
  }
  return args.findLast((arg) => arg.trim() !== '')!.trim()
}

interface Message {
  /** Undefined for a message of a table, which may be logged at several levels. */
  readonly level: string | undefined
  readonly message: string
}

const LITERAL = /'[^']*'|"[^"]*"|`[^`]*`/g

/** Returns the possible strings of an argument: a literal, or those of a table of the file, such as `MESSAGES[mode]`. */
function stringsOf(argument: string, text: string): string[] {
  const own = argument.match(LITERAL)
  if (own !== null) return own
  const [, table, name] = /^([A-Z_]+)(?:\.(\w+)|\[\w+\])$/.exec(argument) ?? []
  const [, rows = ''] = (table && new RegExp(`const ${table}\\b[^=]*= \\{([^}]*)\\}`).exec(text)) || []
  return rows
    .split('\n')
    .flatMap((row) => (name === undefined || row.trim().startsWith(name) ? (row.match(LITERAL) ?? []) : []))
}

const calls = sources.flatMap((text) =>
  [...text.matchAll(CALL)].map((call) => {
    const argument = lastArgument(text, call.index + call[0].length)
    return { level: call[1]!, strings: stringsOf(argument, text), ofTable: argument.endsWith(']') }
  }),
)
/** The message, with `…` for variable parts. */
const logged = calls.flatMap(({ level, strings, ofTable }) =>
  strings.map((text): Message => ({
    level: ofTable ? undefined : level,
    message: text.slice(1, -1).replaceAll(/\$\{[^}]*\}/g, '…'),
  })),
)
const requests = sources
  .flatMap((text) => [...text.matchAll(/"msg":"(\w+)"/g)])
  .flatMap(([, message]) => [
    { level: 'info', message: message! },
    { level: 'error', message: message! },
  ])
const documented = [...doc.matchAll(/^\| (\w+) \| `([^`]+)` \|/gm)].map(([, level, message]) => ({
  level: level!,
  message: message!,
}))

/** True if a documented message matches a logged message, with text for the variable parts. */
function isSame(shown: Message, pattern: Message): boolean {
  const parts = pattern.message
    .split('…')
    .map((part) => part.replaceAll(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`))
  return (
    (pattern.level ?? shown.level) === shown.level && new RegExp(`^${parts.join('.+')}$`).test(shown.message)
  )
}

describe('docs/log-messages.md', () => {
  it('lists every logged message', () => {
    expect(logged.length).toBeGreaterThan(20)
    const missing = logged.filter((pattern) => !documented.some((shown) => isSame(shown, pattern)))
    expect(missing).toEqual([])
  })

  it('lists only logged messages', () => {
    const patterns = [...logged, ...requests]
    const gone = documented.filter((shown) => !patterns.some((pattern) => isSame(shown, pattern)))
    expect(gone).toEqual([])
  })

  it('describes the messages that are composed elsewhere', () => {
    const made = calls.filter(({ strings }) => strings.length === 0).map(({ level }) => level)
    const described = [...doc.matchAll(/^\| (\w+) \| \*[^*]+\* \|/gm)].map(([, level]) => level)
    expect(described).toHaveLength(made.length)
    expect(new Set(described)).toEqual(new Set(made))
  })
})
