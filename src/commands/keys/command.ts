import { createKeyText, hashOfKey } from '../../authenticate/key/key-text.ts'
import type { KeyText } from '../../config/keys/edit-keys.ts'
import type { KeyItem } from '../../config/keys/key-lines.ts'
import { nearest } from '../../config/yaml/issue.ts'
import { instant } from '../../runtime/instant.ts'
import { type Args, positionals, textOf, UsageError } from '../args.ts'
import { cell, formatList, formatRows, pluralize } from '../format.ts'
import { readGivenPlan } from '../given-plan.ts'
import { type Io, print, writeLines } from '../io.ts'
import { readUntil } from '../until.ts'
import { changeKeys, describeOpenFile, readKeyText } from './keys-store.ts'
import { type KeysSettings, settingsOf } from './settings.ts'
import { assertClient, assertLong, readGivenKey } from './given.ts'

/** A key as operators see it: by the first digits of its SHA-256. */
interface ListedKey {
  readonly client: string
  readonly key: string
  readonly plan: string | null
  readonly until: string | null
  readonly expired: boolean
}

/** Digits of the SHA-256 by which a key is named. */
const SHOWN_DIGITS = 8

/** Creates, lists and revokes API keys in their file, or sets the plan of their client. */
export async function run(args: Args, io: Io): Promise<void> {
  const [action, ...words] = positionals(args)
  const revokesGiven = action === 'revoke' && args['stdin'] === true
  const most = revokesGiven ? 0 : 1
  if (words.length > most) throw new UsageError(surplusText(action))
  const [client] = words
  const settings = await settingsOf(args, io)
  if (action === 'list') return await list(settings, client, args, io)
  if (revokesGiven) return await revokeGiven(settings, args, io)
  assertClient(client)
  if (action === 'create') return await create(settings, client, args, io)
  if (action === 'revoke') return await revoke(settings, client, args, io)
  return await setPlan(settings, client, args, io)
}

/** Says what to write in place of a further word, without repeating it: it may be a key. */
function surplusText(action: string | undefined): string {
  if (action === 'create') return 'Give only the id. A key that the client already has is read by --stdin.'
  if (action === 'revoke')
    return 'Give only the id, with --key and the first digits of a key, or only --stdin.'
  return 'Give only the id.'
}

async function create(settings: KeysSettings, client: string, args: Args, io: Io): Promise<void> {
  const { file } = settings
  const asked = planOf(args, settings)
  const untilAt = readUntil(textOf(args, 'until'))
  const given = args['stdin'] === true ? await readGivenKey(io) : undefined
  const allowsShort = args['allow-short'] === true
  if (allowsShort && given === undefined) throw new UsageError('--allow-short needs --stdin.')
  if (given !== undefined && !allowsShort) assertLong(given)
  const key = given ?? createKeyText()
  const sha256 = hashOfKey(key)
  let created: KeyItem = { client, sha256 }
  let others = 0
  await changeKeys(file, (keys) => {
    const same = keys.items.find((item) => item.sha256 === sha256)
    if (same !== undefined) throw new Error(`The key is already one of ${same.client}.`)
    const own = keys.ofClient(client)
    const plan = asked === undefined ? own[0]?.plan : (asked ?? undefined)
    others = own.filter((item) => item.plan !== plan).length
    created = {
      client,
      sha256,
      ...(plan !== undefined && { plan }),
      ...(untilAt !== undefined && { untilAt }),
    }
    return keys.withPlan(client, plan).add(created)
  })
  const listed = listedOf(created)
  if (args['json'] === true)
    return print(io, args, { ...listed, sha256, ...(given === undefined && { secret: key }) }, () => '')
  if (given === undefined) writeLines(io.stdout, key)
  const once = given === undefined ? ' This is the only time that it is shown.' : ''
  const moved = others === 0 ? '' : ` ${pluralize(others, 'other key')} of ${client} got the same plan.`
  writeLines(io.stderr, `Added the key ${listed.key} of ${describe(listed)} to ${file}.${once}${moved}`)
}

const describe = ({ client, plan, until }: ListedKey): string =>
  `${client}${plan === null ? '' : `, plan ${plan}`}${until === null ? '' : `, until ${until}`}`

async function list({ file }: KeysSettings, client: string | undefined, args: Args, io: Io) {
  const { items } = await readKeyText(file)
  const open = await describeOpenFile(file)
  if (open !== undefined) writeLines(io.stderr, `note: ${open}`)
  const keys = items.filter((item) => client === undefined || item.client === client).map(listedOf)
  const head = ['CLIENT', 'KEY', 'PLAN', 'UNTIL', 'STATE']
  print(io, args, { file, keys }, () => {
    const rows = keys.map(({ client, key, plan, until, expired }) => [
      cell(client),
      key,
      plan,
      until,
      expired ? 'expired' : 'valid',
    ])
    return formatRows(head, rows) || `${file} has no keys${client === undefined ? '' : ` of ${client}`}.`
  })
}

function listedOf({ client, sha256, plan, untilAt }: KeyItem): ListedKey {
  const until = untilAt === undefined ? null : instant(untilAt)
  const expired = untilAt !== undefined && untilAt <= Date.now()
  return { client, key: sha256.slice(0, SHOWN_DIGITS), plan: plan ?? null, until, expired }
}

async function revoke({ file }: KeysSettings, client: string, args: Args, io: Io): Promise<void> {
  const wanted = textOf(args, 'key')?.toLowerCase()
  await remove(file, args, io, (keys) => {
    const own = keys.ofClient(client)
    if (own.length === 0) throw unknownClient(keys, client, file)
    const found = wanted === undefined ? own : own.filter(({ sha256 }) => sha256.startsWith(wanted))
    const names = formatList(own.map(({ sha256 }) => sha256.slice(0, SHOWN_DIGITS)))
    if (found.length === 0 || (wanted !== undefined && wanted.length < SHOWN_DIGITS))
      throw new UsageError(`--key must be a key of ${client}, by the first digits of its SHA-256: ${names}.`)
    if (found.length > 1 && args['all'] !== true)
      throw new UsageError(`Which key of ${client}? Give --key with one of ${names}, or --all.`)
    return found
  })
}

async function revokeGiven({ file }: KeysSettings, args: Args, io: Io): Promise<void> {
  const sha256 = hashOfKey(await readGivenKey(io))
  await remove(file, args, io, (keys) => {
    const found = keys.items.filter((item) => item.sha256 === sha256)
    if (found.length === 0) throw new UsageError(`The key is not in ${file}.`)
    return found
  })
}

async function remove(file: string, args: Args, io: Io, find: (keys: KeyText) => readonly KeyItem[]) {
  let revoked: readonly KeyItem[] = []
  await changeKeys(file, (keys) => {
    revoked = find(keys)
    return keys.remove(new Set(revoked.map(({ sha256 }) => sha256)))
  })
  print(io, args, { file, revoked: revoked.map(listedOf) }, () => {
    const names = formatList(revoked.map((item) => listedOf(item).key))
    return `Revoked ${names} of ${revoked[0]!.client}. Gateways refuse it within a second of reading ${file}.`
  })
}

async function setPlan(settings: KeysSettings, client: string, args: Args, io: Io): Promise<void> {
  const { file } = settings
  const plan = planOf(args, settings)
  if (plan === undefined) throw new UsageError('Which plan? Give --plan, or --plan none.')
  await changeKeys(file, (keys) => {
    if (keys.ofClient(client).length === 0) throw unknownClient(keys, client, file)
    return keys.withPlan(client, plan ?? undefined)
  })
  print(io, args, { file, client, plan }, () => `The plan of ${client} is now ${plan ?? 'none'}.`)
}

/** Returns the plan of `--plan`, which the configuration must have; null for `none`. */
function planOf(args: Args, { plans }: KeysSettings): string | null | undefined {
  const plan = textOf(args, 'plan')
  return plan === undefined ? undefined : readGivenPlan(plan, plans)
}

function unknownClient({ items }: KeyText, client: string, file: string): UsageError {
  const similar = nearest(client, [...new Set(items.map((item) => item.client))])
  return new UsageError(`${client} has no key in ${file}.${similar ? ` Did you mean "${similar}"?` : ''}`)
}
