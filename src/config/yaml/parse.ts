import { Composer, type Document, Lexer, type LineCounter, Parser, YAMLParseError } from 'yaml'

/** The deepest that brackets may nest; the parser takes time without end for thousands. */
const DEEPEST = 100

/** Brackets nest too deeply for any configuration. */
export class TooDeep extends Error {
  readonly offset: number

  constructor(offset: number) {
    super('the brackets nest too deeply')
    this.offset = offset
  }
}

/** The core schema whatever the file asks for; keys that stand twice are looked for elsewhere, to tell their paths. */
const READING = { schema: 'core', merge: true, uniqueKeys: false, logLevel: 'error' } as const

/** Parses one YAML document, of which the mistakes are told in it; throws a `TooDeep`. */
export function parseDocument(text: string, lineCounter: LineCounter): Document.Parsed {
  let document: Document.Parsed | undefined
  for (const next of new Composer(READING).compose(tokensOf(text, lineCounter), true, text.length)) {
    if (document === undefined) document = next
    else {
      document.errors.push(new YAMLParseError([next.range[0], next.range[1]], 'MULTIPLE_DOCS', ''))
      break
    }
  }
  return document!
}

/** What `Parser.parse` gives, with an eye on the brackets: to lex a long file twice takes as long as to parse it. */
function* tokensOf(text: string, lineCounter: LineCounter): ReturnType<Parser['parse']> {
  const parser = new Parser(lineCounter.addNewLine)
  lineCounter.addNewLine(0)
  let depth = 0
  for (const lexeme of new Lexer().lex(text)) {
    if (lexeme === '[' || lexeme === '{') depth += 1
    else if (lexeme === ']' || lexeme === '}') depth -= 1
    if (depth > DEEPEST) throw new TooDeep(parser.offset)
    yield* parser.next(lexeme)
  }
  yield* parser.end()
}
