import { hostname, userInfo } from 'node:os'
import { duration } from '../../config/sections/values.ts'
import { instant, instantMs } from '../../runtime/instant.ts'
import type { SettingResult } from '../../process/operations.ts'
import { type Admin, ask } from '../admin-client.ts'
import { type Args, type Io, positionals, print, textOf, UsageError, writeLines } from '../io.ts'

const MAX_SPAN = '3650d'
const durationSchema = duration('1s', MAX_SPAN)

/** Sets or removes overrides of one client at all gateways that share the store, either all that are given or none. */
export async function setLimits(admin: Admin, client: string, args: Args, io: Io): Promise<void> {
  const set = parseSettings(positionals(args).slice(1))
  const note = textOf(args, 'note')
  const isSet = Object.values(set).some((limit) => limit !== null)
  const until = readUntil(args, Date.now())
  if (!isSet && (until !== undefined || note !== undefined))
    throw new UsageError('--until, --permanent and --note need a number; "default" removes the override.')
  if (client !== client.trim()) writeLines(io.stderr, 'warning: the client id begins or ends with a blank')
  const by = `${io.env['SUDO_USER'] || userName()}@${hostname()}`.slice(0, 100)
  const options = { method: 'PATCH', body: { set, until, note, by } }
  const result = await ask<SettingResult>(admin, `/limits/${encodeURIComponent(client)}`, options)
  print(io, args, result, describe)
  const unknown = `no calls of the client "${client}" are counted now, and the file does not list it`
  if (isSet && !result.seen) writeLines(io.stderr, `note: ${unknown}; is the id right?`)
}

/** Parses `LIMIT=N` and `LIMIT=default`, which is null; throws a UsageError. */
function parseSettings(words: readonly string[]): Readonly<Record<string, number | null>> {
  const form = 'LIMIT=N, such as requests=5000, or LIMIT=default'
  if (words.length === 0) throw new UsageError(`Which limit? Write ${form}.`)
  const settings = new Map<string, number | null>()
  for (const word of words) {
    const [, name, value = ''] = /^([^=]+)=(.*)$/.exec(word) ?? []
    if (name === undefined) throw new UsageError(`"${word}" must be ${form}.`)
    if (settings.has(name)) throw new UsageError(`"${name}" is given twice.`)
    const isDefault = value === 'default'
    const range = `a whole number from 0 to ${Number.MAX_SAFE_INTEGER}, or "default"`
    if (!isDefault && !(/^\d+$/.test(value) && Number.isSafeInteger(Number(value))))
      throw new UsageError(`"${word}": the limit must be ${range}.`)
    settings.set(name, isDefault ? null : Number(value))
  }
  return Object.fromEntries(settings)
}

/** Returns the instant of `--until`, null for `--permanent`, or undefined for the default; throws a UsageError. */
function readUntil(args: Args, nowMs: number): string | null | undefined {
  const text = textOf(args, 'until')
  if (text === undefined) return args['permanent'] === true ? null : undefined
  const { success, data } = durationSchema.safeParse(text)
  const at = success ? nowMs + data : instantMs(text)
  const span = `a duration from now such as 2h, from 1s to ${MAX_SPAN}`
  if (Number.isNaN(at))
    throw new UsageError(`--until must be an instant such as 2027-01-31T00:00:00Z, or ${span}.`)
  if (at <= nowMs) throw new UsageError('--until has passed; give a future instant.')
  return instant(at)
}

/** Returns the name of the user, or the id of a user without a name, as in some containers. */
function userName(): string {
  try {
    return userInfo().username
  } catch {
    return `user ${process.getuid?.()}`
  }
}

function describe({ client, limits, shared }: SettingResult): string {
  const lines = limits.map(({ name, before, after }) => {
    const what = `"${name}" of the client "${client}"`
    if (after === null || before === null)
      return `Removed the override of ${what}, a limit that the file does not have.`
    if (after.decidedBy === 'override')
      return `Set ${what} to ${after.limit}: ${after.because}. It replaces ${before.limit}: ${before.because}.`
    if (before.decidedBy === 'override')
      return `Removed the override of ${what}, which was ${before.limit}. It is ${after.limit} again: ${after.because}.`
    return `There was no override of ${what}. It is ${after.limit}: ${after.because}.`
  })
  const scope = shared
    ? 'Every gateway applies this within a second.'
    : 'This process keeps it until it exits.'
  return [...lines, scope].join('\n')
}
