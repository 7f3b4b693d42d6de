/**
 * Control characters and line separators, which move the cursor or start a line, and the characters
 * that are not shown, among them bidi marks: a client id with one looks like another. The console
 * has the same.
 */
const UNSAFE = /[\p{Cc}\p{Default_Ignorable_Code_Point}\u2028\u2029]/gu

/**
 * Escapes unsafe characters as `\uXXXX`, which is valid in JSON: callers choose parts of what logs
 * and commands print.
 */
export const escaped = (text: string): string =>
  text.replaceAll(UNSAFE, (char) => char.replaceAll(/[^]/g, codeUnitEscape))

const codeUnitEscape = (unit: string) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`
