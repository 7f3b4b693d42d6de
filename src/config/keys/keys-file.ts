import { z } from 'zod'
import { KEY_IN_TEXT } from '../../authenticate/key/key-text.ts'
import { clientIdIssue } from '../sections/client-id.ts'
import { keyItem } from '../sections/keys.ts'
import { ConfigError, type Issue, issueAt, mistakesOf, nearest } from '../yaml/issue.ts'
import { readListSource } from '../yaml/source.ts'
import { isBlankLine, type KeyItem, readKeyLine } from './key-lines.ts'

const REMEDY = '"sluice keys create" writes keys to it, and [ ] is a list without keys'
/** The keys of an item. Any other one is not shown: in files of other programs, it is the API key itself. */
const WORDS = new Set(['id', 'sha256', 'plan', 'until'])
const IS_KEY =
  'is a key, which this file must not have: revoke it if others may have read it, and add its hash with "sluice keys create ID --stdin"'

/**
 * Reads the file with the hashes of keys, whose plans must be some of `plans`, if they are given. Throws a `ConfigError`, which has no text of the file that
 * may be a key.
 */
export function readKeys(text: string, file: string, plans?: readonly string[]): readonly KeyItem[] {
  assertNoKey(text, file)
  const items = readLines(text)
  if (items !== undefined && items.length > 0 && [...issuesOf(items, plans)].length === 0) return items
  const { value, locate } = readListSource(text, file, REMEDY, WORDS)
  const parsed = z.array(keyItem).safeParse(value)
  const issues = parsed.success
    ? [...issuesOf(parsed.data, plans)]
    : parsed.error.issues.flatMap((issue) => mistakesOf(issue))
  if (!parsed.success || issues.length > 0) throw new ConfigError(locate(issues))
  return parsed.data
}

/** Throws a `ConfigError` if a key is anywhere in the file, also in a comment. */
function assertNoKey(text: string, file: string): void {
  const found = KEY_IN_TEXT.exec(text)
  if (found === null) return
  const lines = text.slice(0, found.index).split('\n')
  const where = `${file}:${lines.length}:${lines.at(-1)!.length + 1}`
  throw new ConfigError([{ where, path: '', message: IS_KEY }])
}

/**
 * Reads a file with one item in each line; undefined for another file. The parser of YAML takes 4.5 s
 * and 770 MB for 100,000 items, this 0.6 s.
 */
function readLines(text: string): readonly KeyItem[] | undefined {
  const items: KeyItem[] = []
  for (const line of text.split(/\r?\n/)) {
    if (isBlankLine(line)) continue
    const item = readKeyLine(line)
    if (item === undefined || clientIdIssue(item.client) !== true) return undefined
    items.push(item)
  }
  return items
}

function* issuesOf(items: readonly KeyItem[], plans: readonly string[] | undefined): Generator<Issue> {
  yield* contradictions(items)
  if (plans === undefined) return
  const known = new Set(plans)
  for (const [i, { plan }] of items.entries()) {
    if (plan === undefined || known.has(plan)) continue
    const similar = nearest(plan, plans)
    const remedy = similar === undefined ? 'define it under "plans"' : `did you mean "${similar}"?`
    yield issueAt([i, 'plan'], `there is no such plan; ${remedy}`)
  }
}

/** Yields hashes that an earlier item has, and plans of a client that differ. */
function* contradictions(items: readonly KeyItem[]): Generator<Issue> {
  const firsts = new Map<string, number>()
  const plans = new Map<string, number>()
  for (const [i, { client, sha256, plan }] of items.entries()) {
    const first = firsts.get(sha256)
    if (first === undefined) firsts.set(sha256, i)
    else yield issueAt([i, 'sha256'], `is also the hash of [${first}]; remove one`)
    const other = plans.get(client)
    if (other === undefined) plans.set(client, i)
    else if (items[other]!.plan !== plan)
      yield issueAt(
        [i, 'plan'],
        `must be that of [${other}], a key of the same client; write it in both, or in none`,
      )
  }
}
