import { instantMs } from '../../config/sections/limits.ts'
import { duration } from '../../config/sections/values.ts'
import { nearest } from '../../config/yaml/problem.ts'
import type { Config } from '../../config/schema.ts'
import { changeOverrides } from '../../limit/overrides-live.ts'
import {
  byClient,
  isOverridable,
  lasts,
  type ListedOverride,
  listOverrides,
  type Override,
} from '../../limit/overrides.ts'
import { overridesKey } from '../../limit/redis/overrides.ts'
import { formatInstant, formatList } from '../format.ts'
import { type Given, type Io, load, print, textOf, UsageError, wordsOf } from '../io.ts'
import { withRedis } from './with-redis.ts'

/** A limit to be set, or to be no longer overridden. */
interface Wanted {
  readonly name: string
  readonly limit: number | undefined
}

/** What was done, for operators. */
interface Done {
  readonly client: string
  /** All overrides of the client from now on. */
  readonly overrides: readonly ListedOverride[]
  /** The limits whose override was removed. */
  readonly removed: readonly string[]
}

const LONGEST = '3650d'
const span = duration('1s', LONGEST)

/** Sets or removes overrides of one client in Redis, all or none of those that are given. */
export async function setLimits(
  given: Given,
  client: string,
  io: Io,
  onWarning: (warning: string) => void,
): Promise<void> {
  if (/\p{Cc}/u.test(client))
    throw new UsageError('The id of the client has a control character, as that of no token has.')
  if (client !== client.trim()) onWarning('the id of the client has blanks around it')
  const nowMs = Date.now()
  const wanted = readWanted(wordsOf(given).slice(1))
  const text = textOf(given, 'until')
  const untilAt = text === undefined ? undefined : readUntil(text, nowMs)
  if (untilAt !== undefined && wanted.every(({ limit }) => limit === undefined))
    throw new UsageError('--until goes with a number; "default" has no end.')
  const { config } = await load(given, io)
  for (const { name } of wanted) assertOverridable(config, name)
  if (config.store === 'memory') {
    throw new Error(
      'Overrides are kept in Redis, and "store: memory" has none; write the limit to "clients" in the file, which is reloaded.',
    )
  }

  const names = new Set(wanted.map(({ name }) => name))
  const removed: string[] = []
  function change(before: readonly Override[]): readonly Override[] {
    const mine = before.filter((one) => one.client === client && names.has(one.name))
    removed.splice(0)
    const added = wanted.flatMap(({ name, limit }) => {
      if (limit !== undefined)
        return [{ client, name, limit, ...(untilAt !== undefined && { untilAt }), setAt: nowMs }]
      if (mine.some((one) => one.name === name)) removed.push(name)
      return []
    })
    return [...before.filter((one) => !mine.includes(one)), ...added]
  }
  const overrides = await withRedis(
    config,
    overridesKey,
    (store) => changeOverrides(store.overrides, change, nowMs),
    onWarning,
  )
  const mine = byClient(overrides.filter((one) => one.client === client))
  const listed = listOverrides(mine, config.limits, config.clientLimits, nowMs)
  const done: Done = { client, overrides: listed, removed }
  print(io, given, done, () => describe(done, wanted))
  for (const { name, limit } of wanted) {
    const file = config.clientLimits.get(client)?.get(name)
    if (limit === undefined || file === undefined || !lasts(file, nowMs)) continue
    const until = file.untilAt === undefined ? '' : ` until ${formatInstant(file.untilAt)}`
    onWarning(
      `the file gives the client "${client}" its own "${name}" of ${file.limit}${until}, which beats this override; change it in the file`,
    )
  }
}

/** Parses `LIMIT=N` and `LIMIT=default`; throws a UsageError. */
function readWanted(words: readonly string[]): readonly Wanted[] {
  if (words.length === 0)
    throw new UsageError('Which limit? Write LIMIT=N, such as requests=5000, or LIMIT=default.')
  const wanted = words.map((word) => {
    const [, name, value] = /^([^=]+)=(.*)$/.exec(word) ?? []
    if (name === undefined)
      throw new UsageError(`"${word}" must be LIMIT=N, such as requests=5000, or LIMIT=default.`)
    if (value === 'default') return { name, limit: undefined }
    const limit = /^\d+$/.test(value!) ? Number(value) : Number.NaN
    if (!Number.isSafeInteger(limit)) {
      throw new UsageError(
        `"${word}": the limit must be a whole number from 0 to ${Number.MAX_SAFE_INTEGER}, or "default".`,
      )
    }
    return { name, limit }
  })
  const twice = wanted.find(({ name }, i) => wanted.findIndex((one) => one.name === name) < i)
  if (twice !== undefined) throw new UsageError(`"${twice.name}" is given twice.`)
  return wanted
}

/** Parses an instant or a duration from now, in epoch milliseconds; throws a UsageError. */
function readUntil(text: string, nowMs: number): number {
  const { success, data } = span.safeParse(text)
  const at = success ? nowMs + data : instantMs(text)
  if (Number.isNaN(at)) {
    throw new UsageError(
      `--until must be an instant such as 2027-01-31T00:00:00Z, or a duration from now such as 2h, from 1s to ${LONGEST}.`,
    )
  }
  if (at <= nowMs) throw new UsageError('--until has passed; give an instant to come.')
  return at
}

function assertOverridable({ limits }: Config, name: string): void {
  const limit = limits.find((one) => one.name === name)
  if (limit !== undefined && isOverridable(limit)) return
  const known = limits.filter(isOverridable).map((one) => one.name)
  const meant = limit === undefined ? nearest(name, known) : undefined
  const what =
    limit === undefined
      ? `There is no limit "${name}"`
      : `The limit "${name}" does not count by the client first`
  throw new UsageError(
    `${what}; ${meant === undefined ? `those that can be set are: ${formatList(known)}.` : `did you mean "${meant}"?`}`,
  )
}

function describe({ client, overrides, removed }: Done, wanted: readonly Wanted[]): string {
  const lines = wanted.map(({ name, limit }) => {
    if (limit === undefined) {
      return removed.includes(name)
        ? `Removed the override of "${name}" of the client "${client}".`
        : `The client "${client}" had no override of "${name}".`
    }
    const until = overrides.find((one) => one.name === name)?.until ?? null
    return `Set "${name}" of the client "${client}" to ${limit}${until === null ? ', for good' : ` until ${until}`}.`
  })
  const changed = removed.length > 0 || wanted.some(({ limit }) => limit !== undefined)
  return [...lines, ...(changed ? ['Every gateway has this within a second.'] : [])].join('\n')
}
