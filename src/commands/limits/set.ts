import { hostname, userInfo } from 'node:os'
import { duration } from '../../config/sections/values.ts'
import { instant, instantMs } from '../../limit/instant.ts'
import type { SettingResult } from '../../process/operations.ts'
import { type Admin, ask } from '../ask-admin.ts'
import { type Args, type Io, print, textOf, UsageError, positionals, writeLines } from '../io.ts'

const LONGEST = '3650d'
const span = duration('1s', LONGEST)

/** Sets or removes overrides of one client at all gateways: all that are given, or none. */
export async function setLimits(admin: Admin, client: string, args: Args, io: Io): Promise<void> {
  const set = readWanted(positionals(args).slice(1))
  const note = textOf(args, 'note')
  const isSet = Object.values(set).some((limit) => limit !== null)
  const until = readUntil(args, Date.now())
  if (!isSet && (until !== undefined || note !== undefined))
    throw new UsageError('--until, --permanent and --note go with a number; "default" has no end.')
  if (client !== client.trim()) writeLines(io.stderr, 'warning: the id of the client has blanks around it')
  const body = { set, until, note, by: operator(io) }
  const path = `/limits/${encodeURIComponent(client)}`
  const result = await ask<SettingResult>(admin, path, { method: 'PATCH', body })
  print(io, args, result, describe)
  if (isSet && !result.seen) {
    writeLines(
      io.stderr,
      `note: no call of the client "${client}" is counted now, and the file does not list it; is the id right?`,
    )
  }
}

/** Parses `LIMIT=N` and `LIMIT=default`, which is null; throws a UsageError. */
function readWanted(words: readonly string[]): Readonly<Record<string, number | null>> {
  if (words.length === 0)
    throw new UsageError('Which limit? Write LIMIT=N, such as requests=5000, or LIMIT=default.')
  const wanted = new Map<string, number | null>()
  for (const word of words) {
    const [, name, value] = /^([^=]+)=(.*)$/.exec(word) ?? []
    if (name === undefined)
      throw new UsageError(`"${word}" must be LIMIT=N, such as requests=5000, or LIMIT=default.`)
    if (wanted.has(name)) throw new UsageError(`"${name}" is given twice.`)
    const limit = value === 'default' ? null : /^\d+$/.test(value!) ? Number(value) : Number.NaN
    if (limit !== null && !Number.isSafeInteger(limit)) {
      throw new UsageError(
        `"${word}": the limit must be a whole number from 0 to ${Number.MAX_SAFE_INTEGER}, or "default".`,
      )
    }
    wanted.set(name, limit)
  }
  return Object.fromEntries(wanted)
}

/** Returns an instant, null for no end, or undefined where none is given; throws a UsageError. */
function readUntil(args: Args, nowMs: number): string | null | undefined {
  const text = textOf(args, 'until')
  if (text === undefined) return args['permanent'] === true ? null : undefined
  const { success, data } = span.safeParse(text)
  const at = success ? nowMs + data : instantMs(text)
  if (Number.isNaN(at)) {
    throw new UsageError(
      `--until must be an instant such as 2027-01-31T00:00:00Z, or a duration from now such as 2h, from 1s to ${LONGEST}.`,
    )
  }
  if (at <= nowMs) throw new UsageError('--until has passed; give an instant to come.')
  return instant(at)
}

/** Returns who runs this command: with sudo, the user before. */
const operator = ({ env }: Io): string => `${env['SUDO_USER'] || userName()}@${hostname()}`.slice(0, 100)

/** Returns the number of a user without a name, as in some containers. */
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
  const where = shared ? 'Every gateway has this within a second.' : 'This process keeps it until it ends.'
  return [...lines, where].join('\n')
}
