import { describe, expect, it } from 'vitest'
import { fileText, filesIn } from '../helpers/repository.ts'

/** docs/troubleshooting.md must have every text that callers get in `detail`, under the heading of each code, and no other. */
const page = fileText('docs/troubleshooting.md')
const errors = page.slice(page.indexOf('\n## Errors\n'))

/** The rooms that refuse requests. */
const ROOMS = ['authenticate', 'downstream', 'gateway', 'limit/fallback', 'par', 'policy', 'upstream']
/** The files whose texts operators get, about the callers that they name. */
const OF_OPERATORS = new Set(['src/policy/counted-caller.ts', 'src/policy/caller-keys.ts'])
const files = [
  'src/errors.ts',
  'src/process/open-issuers.ts',
  ...ROOMS.flatMap((room) => filesIn(`src/${room}`, '.ts').filter((file) => !OF_OPERATORS.has(file))),
]
/** Texts of these rooms that are not errors of callers: a defect, and header fields. */
const OTHERS = new Set(['An admitted call has no refusal.', 'Bearer …', 'Basic …'])
/** The files whose phrases continue a sentence about a JWT. */
const PHRASES = ['src/par/client-jwt.ts', 'src/authenticate/token/claims.ts']

/** A comment, a regular expression, a string or a template. */
const TOKEN =
  /\/\*[\s\S]*?\*\/|\/\/.*|(?<=[=(,:?!&|[]\s*)\/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n[])+\/|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|\$\{[^}]*\}|[^`\\])*`/g

/** Returns the strings and templates of a file, with `…` for what varies. */
const literalsOf = (file: string): string[] =>
  [...fileText(file).matchAll(TOKEN)]
    .filter(([token]) => !token.startsWith('/'))
    .map(([literal]) => literal.slice(1, -1).replaceAll(/\$\{[^}]*\}/g, '…'))

const sentences = files
  .flatMap(literalsOf)
  .filter((text) => /^[A-Z][^ ]* .*[.…]$/.test(text) && !OTHERS.has(text))
const phrases = PHRASES.flatMap(literalsOf).filter((text) => /^(?:expired$|(?:is|has|must) .{6})/.test(text))
const documented = [...errors.matchAll(/^\| `([^`]+)` \|/gm)].map(([, text]) => text!)

/** Returns true if a text of the page is one of the source; both may have `…`, which stands for any text. */
function isSame(shown: string, text: string): boolean {
  const parts = text.split(/…+/).map((part) => part.replaceAll(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`))
  return new RegExp(`^${parts.join('.*')}\\.?$`).test(shown)
}

describe('docs/troubleshooting.md', () => {
  it('docs/troubleshooting.md has an entry for each code, at the anchor to which its type leads', () => {
    const [, list] = /const STATUS = \{([\s\S]*?)\n\}/.exec(fileText('src/errors.ts'))!
    const codes = [...list!.matchAll(/(\w+): (\d+)/g)].map(([, code, status]) => `${code} ${status}`)
    const entries = [...errors.matchAll(/^### (\w+)\n\nStatus (\d{3})\b/gm)].map(
      ([, code, status]) => `${code} ${status}`,
    )
    expect(entries.toSorted()).toEqual(codes.toSorted())
  })

  it('docs/troubleshooting.md has every text of an error', () => {
    expect(sentences.length).toBeGreaterThan(90)
    expect(phrases.length).toBeGreaterThan(15)
    const missing = [...sentences, ...phrases].filter(
      (text) => !documented.some((shown) => isSame(shown, text)),
    )
    expect(missing).toEqual([])
  })

  it('docs/troubleshooting.md has only texts of errors', () => {
    const texts = [...sentences, ...phrases]
    const begun = /^The (?:request object|client_assertion|access token) /
    const gone = documented.filter(
      (shown) => !texts.some((text) => isSame(shown, text) || isSame(shown.replace(begun, ''), text)),
    )
    expect(gone).toEqual([])
  })
})
