/** Moves a cursor, begins a line, or turns the direction of the text: control characters, line separators and bidi marks. */
const UNSAFE = /[\p{Cc}\u061C\u200E\u200F\u2028-\u202E\u2066-\u2069]/gu

/** Replaces what moves a cursor by `\uXXXX`, as JSON may have it too: callers choose some of what logs and commands print. */
export function escaped(text: string): string {
  return text.replaceAll(UNSAFE, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`)
}
