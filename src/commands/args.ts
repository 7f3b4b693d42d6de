export type Args = Readonly<Record<string, unknown>>

/** An invalid command line; exits with 64. */
export class UsageError extends Error {}

export const positionals = (args: Args): readonly string[] =>
  (args['_'] as readonly unknown[]).slice(1).map(String)

export const textOf = (args: Args, flag: string): string | undefined =>
  typeof args[flag] === 'string' ? args[flag] : undefined

export const MAX_PORT = 65_535

export function wholeOf(args: Args, flag: string, max: number, min = 0): number {
  const text = String(args[flag])
  if (/^\d{1,16}$/.test(text) && Number(text) >= min && Number(text) <= max) return Number(text)
  throw new UsageError(`--${flag} must be a whole number from ${min} to ${max}.`)
}
