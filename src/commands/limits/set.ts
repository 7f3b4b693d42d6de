import { hostname, userInfo } from 'node:os'
import { duration } from '../../config/sections/values.ts'
import { isNamedPart } from '../../policy/counted-caller.ts'
import { instant } from '../../runtime/instant.ts'
import type { SettingResult } from '../../admin/requests/operator-api.ts'
import { type Admin, ask } from '../admin-client.ts'
import { type Args, textOf, UsageError } from '../args.ts'
import { type Io, print, writeLines } from '../io.ts'

const FORM = 'LIMIT=N with a whole number, such as requests=5000, or LIMIT=default'
const durationSchema = duration('1s', '3650d')

/**
 * Sets or removes overrides of one caller at all gateways that share the store, either all that are
 * given or none. `words`: the parts of the caller, then LIMIT=N.
 */
export async function setLimits(admin: Admin, words: readonly string[], args: Args, io: Io) {
  // The first word always names the caller.
  const end = words.findIndex((word, i) => i > 0 && !isNamedPart(word))
  const caller = words.slice(0, end === -1 ? words.length : end).join(' ')
  const set = parseSettings(end === -1 ? [] : words.slice(end))
  const note = textOf(args, 'note')
  const isSet = Object.values(set).some((limit) => limit !== null)
  const until = readUntil(args)
  if (!isSet && (until !== undefined || note !== undefined))
    throw new UsageError('--until, --permanent and --note need a number, not only "default".')
  const by = `${io.env['SUDO_USER'] || userName()}@${hostname()}`.slice(0, 100)
  const options = { method: 'PATCH', body: { set, until, note, by } }
  const result = await ask<SettingResult>(admin, `/limits/${encodeURIComponent(caller)}`, options)
  print(io, args, result, describe)
  const unknown = `no calls of ${result.caller} are counted now, and it is not a client of the file`
  if (isSet && !result.seen) writeLines(io.stderr, `note: ${unknown}; check its spelling`)
}

/** Parses `LIMIT=N` and `LIMIT=default`, which is null; throws a UsageError. */
function parseSettings(words: readonly string[]): Readonly<Record<string, number | null>> {
  if (words.length === 0) throw new UsageError(`Which limit? Write ${FORM}.`)
  const settings = words.map((word) => {
    const [, name, value] = /^([^=]+)=(\d{1,15}|default)$/.exec(word) ?? []
    if (name === undefined) throw new UsageError(`"${word}" must be ${FORM}.`)
    return [name, value === 'default' ? null : Number(value)] as const
  })
  return Object.fromEntries(settings)
}

/** Returns the instant of `--until`, which the gateway checks, null for `--permanent`, or undefined for the default. */
function readUntil(args: Args): string | null | undefined {
  const text = textOf(args, 'until')
  if (text === undefined) return args['permanent'] === true ? null : undefined
  const { success, data } = durationSchema.safeParse(text)
  return success ? instant(Date.now() + data) : text
}

/** Returns the name of the user, or the id of a user without a name, as in some containers. */
function userName(): string {
  try {
    return userInfo().username
  } catch {
    return `user ${process.getuid?.()}`
  }
}

function describe({ caller, limits, shared }: SettingResult): string {
  const lines = limits.map(({ name, before, after }) => {
    const what = `"${name}" of ${caller}`
    if (after === null || before === null)
      return `Removed the override of ${what}, a limit that the file does not have.`
    const replaced = `It replaces ${before.limit}: ${before.because}.`
    return `Set ${what} to ${after.limit}: ${after.because}. ${replaced}`
  })
  const scope = shared
    ? 'Every running gateway applies this within a second.'
    : 'This process keeps it until it exits.'
  return [...lines, scope].join('\n')
}
