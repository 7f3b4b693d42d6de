import { instant, instantMs } from '../../runtime/instant.ts'

/** An item of the keys' file. */
export interface KeyItem {
  readonly client: string
  /** The SHA-256 of the key, in lower-case hex. */
  readonly sha256: string
  readonly plan?: string
  /** Epoch milliseconds. */
  readonly untilAt?: number
}

/** A text in quotes that JSON and YAML read alike. */
const QUOTED = '"(?:[^"\\\\\\p{Cc}\\p{Cs}\\ufeff\\u2028\\u2029]|\\\\["\\\\])+"'
/** A word that YAML takes for a text: it begins with a letter, and is not `true`, `false` or `null`. */
const WORD = '(?!(?:true|false|null)\\b)[A-Za-z][\\w-]*'
const TEXT = `${QUOTED}|${WORD}`
/** A hash; without quotes, one that YAML cannot take for a number. */
const HASH = '"[0-9a-f]{64}"|(?=[0-9e]*[a-df])[0-9a-f]{64}'
const OPTIONS = `(?:, plan: (?<plan>${TEXT}))?(?:, until: (?<until>[\\dTZ:.+-]+))?`
const ITEM = new RegExp(
  `^- \\{ id: (?<id>${TEXT}), sha256: (?<hash>${HASH})${OPTIONS} \\}(?<comment> +#.*)?$`,
  'iu',
)
const ONLY_WORD = new RegExp(`^${WORD}$`, 'i')
const BLANK = /^ *(?:#.*)?$/

/** True for a line without an item. */
export const isBlankLine = (line: string): boolean => BLANK.test(line)

/**
 * Reads an item that is written in one line as `sluice keys create` writes it; undefined for any other
 * line.
 */
export function readKeyLine(line: string): KeyItem | undefined {
  const { id, hash, plan, until } = ITEM.exec(line)?.groups ?? {}
  if (hash === undefined) return undefined
  const untilAt = until === undefined ? undefined : instantMs(until)
  if (Number.isNaN(untilAt)) return undefined
  return {
    client: readText(id!),
    sha256: hash.replaceAll('"', '').toLowerCase(),
    ...(plan !== undefined && { plan: readText(plan) }),
    ...(untilAt !== undefined && { untilAt }),
  }
}

/** Returns the comment at the end of the line of an item, with the blanks before it. */
export const commentOf = (line: string): string => ITEM.exec(line)?.groups?.['comment'] ?? ''

/** Writes an item in one line. */
export function writeKeyLine({ client, sha256, plan, untilAt }: KeyItem): string {
  const ofPlan = plan === undefined ? '' : `, plan: ${writeText(plan)}`
  const until = untilAt === undefined ? '' : `, until: ${instant(untilAt)}`
  return `- { id: ${writeText(client)}, sha256: "${sha256}"${ofPlan}${until} }`
}

const readText = (text: string): string => (text.startsWith('"') ? (JSON.parse(text) as string) : text)
const writeText = (text: string): string => (ONLY_WORD.test(text) ? text : JSON.stringify(text))
