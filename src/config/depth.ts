import { Lexer } from 'yaml'

/** The deepest that brackets may nest; the parser takes time without end for thousands. */
const DEEPEST = 100

/** The line in which brackets nest too deeply for any configuration; undefined where they do not. */
export function tooDeepAt(text: string): number | undefined {
  let depth = 0
  let line = 1
  for (const token of new Lexer().lex(text)) {
    if (token === '[' || token === '{') depth += 1
    else if (token === ']' || token === '}') depth -= 1
    else line += token.split('\n').length - 1
    if (depth > DEEPEST) return line
  }
  return undefined
}
