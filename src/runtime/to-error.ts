/** Returns what was thrown as an Error: itself, or an Error with its text. */
export const toError = (thrown: unknown): Error =>
  thrown instanceof Error ? thrown : new Error(String(thrown), { cause: thrown })
