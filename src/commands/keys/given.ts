import { isKeyText, isMistyped, KEY_IN_TEXT } from '../../authenticate/key/key-text.ts'
import { clientIdIssue } from '../../config/sections/client-id.ts'
import { readKeyLine, writeKeyLine } from '../../config/keys/key-lines.ts'
import { UsageError } from '../args.ts'
import type { Io } from '../io.ts'

/** Minimum length of a key that is added, in characters: who has its hash can try all shorter ones. */
const MIN_ADDED = 20
const MAX_BYTES = 4096

/** Throws a UsageError for an id that no client can have, without repeating it: it may be a key. */
export function assertClient(id: string | undefined): asserts id is string {
  const sha256 = '0'.repeat(64)
  if (!id) throw new UsageError('Which client? Give its id.')
  if (KEY_IN_TEXT.test(id)) throw new UsageError('The id is a key. Give the id of its client.')
  const issue = clientIdIssue(id)
  if (issue !== true) throw new UsageError(`The id ${issue}.`)
  if (readKeyLine(writeKeyLine({ client: id, sha256 }))?.client !== id)
    throw new UsageError('The id must be 1 to 255 printable characters.')
}

/** Throws a UsageError for a key that can be guessed by its hash. */
export function assertLong({ length }: string): void {
  if (length < MIN_ADDED)
    throw new UsageError(
      `The key has ${length} characters. One of less than ${MIN_ADDED} can be found by its hash: give the client a new key, or add it with --allow-short.`,
    )
}

/** Reads a key from standard input. Throws a UsageError for a text that cannot be one. */
export async function readGivenKey({ stdin }: Io): Promise<string> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of stdin) {
    chunks.push(chunk as Buffer)
    bytes += (chunk as Buffer).length
    if (bytes > MAX_BYTES) throw new UsageError(`Standard input has over ${MAX_BYTES} bytes.`)
  }
  const key = Buffer.concat(chunks)
    .toString()
    .replace(/\r?\n$/, '')
  if (!isKeyText(key))
    throw new UsageError(
      'Standard input must be a key: 1 to 256 printable ASCII characters without blanks. Give a client with another one a new key.',
    )
  if (isMistyped(key)) throw new UsageError('The checksum of the key is wrong: it was cut or mistyped.')
  return key
}
