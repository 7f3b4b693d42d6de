export type Args = Readonly<Record<string, unknown>>

/** An invalid command line; exits with 64. */
export class UsageError extends Error {}

export const positionals = (args: Args): readonly string[] =>
  (args['_'] as readonly unknown[]).slice(1).map(String)

/** Returns the texts of a flag that may be given several times, which yargs then parses as a list. */
export const textsOf = (args: Args, flag: string): readonly string[] =>
  [args[flag]].flat().filter((value) => typeof value === 'string')

/** Returns the text of a flag, the last one if it is given several times. */
export const textOf = (args: Args, flag: string): string | undefined => textsOf(args, flag).at(-1)

export const MAX_PORT = 65_535

export function wholeOf(args: Args, flag: string, max: number, min = 0): number {
  const text = textOf(args, flag) ?? ''
  if (/^\d{1,16}$/.test(text) && Number(text) >= min && Number(text) <= max) return Number(text)
  throw new UsageError(`--${flag} must be a whole number from ${min} to ${max}.`)
}
