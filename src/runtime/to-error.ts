/**
 * Returns what was thrown as an Error: itself, or an Error with its text. Errors of the system have a
 * `code`, such as ENOENT.
 */
export const toError = (thrown: unknown): NodeJS.ErrnoException =>
  thrown instanceof Error ? thrown : new Error(String(thrown), { cause: thrown })
