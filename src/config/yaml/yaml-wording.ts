import type { YAMLError } from 'yaml'

const PLAINER: Readonly<Record<string, string>> = {
  MULTIPLE_DOCS: 'a second document starts here; a configuration is one document, so take the "---" out',
  TAB_AS_INDENT: 'a tab indents this line; YAML takes spaces alone',
  TAG_RESOLVE_FAILED: 'a tag (!name) means nothing here; take it out',
}

/** Words what the YAML parser found, without the text behind the colon, which may be a secret. */
export function wordError({ code, message, pos }: YAMLError, text: string): string {
  const start = text.lastIndexOf('\n', pos[0] - 1) + 1
  const line = text.slice(start).split('\n', 1)[0]!
  const hint = /^[^#]*[{,[][^"'#]*\$\{/.test(line) ? '; within { } and [ ], put quotes around "${NAME}"' : ''
  return PLAINER[code] ?? `${message.split(/\n|: /, 1)[0]}${hint}`
}

/** Words what stopped the YAML parser. */
export function wordThrown(error: unknown): string {
  const { message } = error as Error
  if (error instanceof RangeError) return 'the file is nested too deeply'
  if (!/alias count/i.test(message)) return `the file cannot be read: ${message}`
  return 'the aliases (*name) multiply the file beyond bounds; write the values out'
}
