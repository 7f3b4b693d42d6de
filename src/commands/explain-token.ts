import { createReadStream } from 'node:fs'
import { secretParts } from '../policy/parameter-kinds.ts'
import { digestOf, shortenDigest } from '../policy/secret-values.ts'
import { type ExplainedToken, explainToken } from '../process/explain-token.ts'
import { formatParagraphs, formatRows, formatTable } from './format.ts'
import { type Args, positionals, textOf, UsageError } from './args.ts'
import { load, loadOptionsOf } from './configuration.ts'
import { type Io, print } from './io.ts'
import { toError } from '../runtime/to-error.ts'

/** Maximum bytes of the file: several times the longest token that a gateway accepts. */
const MAX_BYTES = 64 * 1024
const JWT = /^\s*(?:(?:bearer|dpop)\s+)?eyJ[\w-]*\./i
/** The name of the field and the scheme, which people copy with a token. */
const FIELD = /^(?:authorization:\s*)?(?:(?:bearer|dpop)\s+)?/i

/**
 * Prints what a gateway with the configuration does with the access token in a file, and why. Never
 * prints the token: it may be valid for hours, and terminals and CI keep what is printed.
 */
export async function run(args: Args, io: Io): Promise<void> {
  const file = textOf(args, 'token')!
  if (JWT.test(file))
    throw new UsageError('--token must name a file, or be - for standard input: other users see arguments.')
  if (positionals(args).length > 0)
    throw new UsageError('--token explains a token, not a request. Leave out the other words.')
  const options = { config: args['config'] }
  if (file === '-' && loadOptionsOf(options, io).file === '-')
    throw new UsageError('--config and --token cannot both be read from standard input.')
  const token = await readToken(file, io)
  const { config } = await load(options, io)
  if (config.tokens.length === 0)
    throw new UsageError('The configuration has no "tokens", so its gateway reads no access token.')
  const explained = await explainToken(config, token, args['offline'] === true)
  const isSecret = secretParts(config.parameters).has('user')
  print(io, args, isSecret ? withSecretUser(explained) : explained, describe)
}

function withSecretUser(explained: ExplainedToken): ExplainedToken {
  const { user, checks } = explained
  return {
    ...explained,
    user: user === null ? null : shortenDigest(digestOf(user)),
    checks: checks.map((row) => (row.check === 'sub' ? { ...row, value: 'not shown: a secret' } : row)),
  }
}

/** Reads a token; throws a UsageError without the name of the file, which may be a token by mistake. */
async function readToken(file: string, { stdin }: Io): Promise<string> {
  const chunks: Buffer[] = []
  let bytes = 0
  try {
    for await (const chunk of file === '-' ? stdin : createReadStream(file)) {
      chunks.push(chunk as Buffer)
      bytes += (chunk as Buffer).length
      if (bytes > MAX_BYTES) break
    }
  } catch (error) {
    const { code = 'unknown error' } = toError(error)
    throw new UsageError(`The file of --token cannot be read: ${code}.`)
  }
  if (bytes > MAX_BYTES) throw new UsageError(`The file of --token has over ${MAX_BYTES} bytes.`)
  const token = Buffer.concat(chunks).toString().trim().replace(FIELD, '')
  if (token === '') throw new UsageError('The file of --token is empty.')
  return token
}

function describe(explained: ExplainedToken): string {
  const { at, checks } = explained
  const rows = checks.map(({ check, result, value, accepted }) => [check, result, value, accepted])
  return formatParagraphs([
    formatRows(['CHECK', 'RESULT', 'OF THE TOKEN', 'ACCEPTED, OR WHY'], rows),
    formatTable([['result', verdictOf(explained), `at ${at}`]]),
  ])
}

function verdictOf({ accepted, client, user, refusal, provided }: ExplainedToken): string {
  if (refusal !== null) {
    const cause = refusal.cause === null ? '' : ` (${refusal.cause})`
    return `refused: ${refusal.status} ${refusal.message}${cause}`
  }
  if (accepted === null) return 'not known: the token was not introspected (--offline)'
  const of = user === null ? '' : `, user ${user}`
  const condition = provided.length > 0 ? `, if ${provided.join(', and ')}` : ''
  return `accepted as client ${client}${of}${condition}`
}
