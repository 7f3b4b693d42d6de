/** Moves a cursor, begins a line, or turns the direction of the words: control characters, line separators and bidi marks. */
const UNSAFE = /[\p{Cc}\u061C\u200E\u200F\u2028-\u202E\u2066-\u2069]/gu

/** The text with `\uXXXX` in place of what moves a cursor, as JSON may have it too. Callers choose some words. */
export function escaped(text: string): string {
  return text.replaceAll(UNSAFE, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`)
}
