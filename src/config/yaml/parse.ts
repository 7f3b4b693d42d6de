import { Composer, isAlias, isMap, isScalar, isSeq, Lexer, Parser, YAMLParseError } from 'yaml'
import type { Document, LineCounter, Node, Scalar } from 'yaml'
import type { Path } from './problem.ts'

/** The deepest that brackets may nest; thousands make the parser take all memory. */
const DEEPEST = 100

/** The core schema, whatever the file asks for. */
const OPTIONS = { schema: 'core', merge: true, stringKeys: true, logLevel: 'error' } as const

/** Parses one YAML document, whose mistakes are among its `errors`; throws a `YAMLParseError` where brackets nest too deeply. */
export function parseDocument(text: string, lineCounter: LineCounter): Document.Parsed {
  let document: Document.Parsed | undefined
  for (const next of new Composer(OPTIONS).compose(tokensOf(text, lineCounter), true, text.length)) {
    if (document !== undefined) {
      document.errors.push(new YAMLParseError([next.range[0], next.range[1]], 'MULTIPLE_DOCS', ''))
      break
    }
    document = next
  }
  return document!
}

/** Yields what `Parser.parse` does, and counts brackets: to lex a long file twice takes as long as to parse it. */
function* tokensOf(text: string, lineCounter: LineCounter): ReturnType<Parser['parse']> {
  const parser = new Parser(lineCounter.addNewLine)
  lineCounter.addNewLine(0)
  let depth = 0
  for (const lexeme of new Lexer().lex(text)) {
    if (lexeme === '[' || lexeme === '{') depth += 1
    else if (lexeme === ']' || lexeme === '}') depth -= 1
    if (depth > DEEPEST)
      throw new YAMLParseError([parser.offset, parser.offset + 1], 'RESOURCE_EXHAUSTION', '')
    yield* parser.next(lexeme)
  }
  yield* parser.end()
}

/** The offset of a path's value or key, or of the innermost thing around it; within an alias, that of what it stands for. */
export function offsetOf(document: Document.Parsed, path: Path, atKey = false): number | undefined {
  let [key, value]: Entry = [undefined, document.contents]
  for (const step of path) {
    const next = entryOf(value, step, document)
    if (next === undefined) return (key ?? value)?.range?.[0]
    ;[key, value] = next
  }
  const isBlank = value === null || (isScalar(value) && value.range?.[0] === value.range?.[1])
  return ((atKey || isBlank ? key : undefined) ?? value)?.range?.[0]
}

type Entry = readonly [key: Node | undefined, value: Node | null]

/** The key and value of a step, through aliases and merge keys. */
function entryOf(node: Node | null, step: string | number, document: Document.Parsed): Entry | undefined {
  const inner = isAlias(node) ? node.resolve(document) : node
  if (isSeq(inner)) {
    const item = inner.items[Number(step)] as Node | undefined
    return item && [undefined, item]
  }
  if (!isMap(inner)) return undefined
  const valueOf = (name: string | number) => inner.items.find(({ key }) => (key as Scalar).value === name)
  const pair = valueOf(step)
  if (pair) return [pair.key as Node, pair.value as Node | null]
  const merged = valueOf('<<')?.value
  for (const source of isSeq(merged) ? merged.items : [merged]) {
    const entry = entryOf((source ?? null) as Node | null, step, document)
    if (entry) return entry
  }
  return undefined
}
