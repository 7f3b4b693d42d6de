import { dirname, join } from 'node:path'
import { discover } from '../../authenticate/token/key-set.ts'
import { loadConfig } from '../../config/load.ts'
import { type Args, DEFAULT_FILE, type Io, print, textOf, UsageError, writeLines } from '../io.ts'
import { assertWritable, schemaText, writeOutput } from '../schema.ts'
import { hasTokens, type InitSettings, promptForMissing } from './prompts.ts'
import { apiText, bankingText, type FoundIssuer, PASSWORD, splitRedis } from './template.ts'

const DISCOVERY_MS = 2000
const SCHEMA = 'sluice.schema.json'

/** Writes a configuration for the given addresses, prompting for missing ones, and its schema, and prints the next steps. */
export async function run(args: Args, io: Io): Promise<void> {
  const file = textOf(args, 'output')!
  const isFile = file !== '-'
  const overwrite = args['force'] === true
  // Before the first prompt.
  if (isFile) assertWritable(file, overwrite)
  const settings = await promptForMissing(args, io)
  const issuer = hasTokens(settings) ? await findIssuer(settings) : undefined
  const text = issuer === undefined ? apiText(settings, isFile) : bankingText(settings, issuer, isFile)
  const { password } = splitRedis(settings.redis)
  await loadConfig({ file, text, env: { [PASSWORD]: password } }).catch((error: Error) => {
    throw new UsageError(`These values do not make a valid configuration:\n${error.message}`)
  })
  const steps = `${issuer?.guessed ? GUESSED : ''}${nextSteps(isFile ? file : 'FILE', settings)}`
  if (!isFile) {
    io.stdout.write(text)
    writeLines(io.stderr, steps)
    return
  }
  const schema = join(dirname(file), SCHEMA)
  await writeOutput(file, text, overwrite ? 'w' : 'wx')
  await writeOutput(schema, schemaText())
  print(io, args, { file, schema }, () => `Wrote ${file}, and ${SCHEMA} for editors.\n${steps}`)
}

/** Finds the keys and endpoints by discovery. Reads both at the backend, because the issuer's URL may be that of the gateway itself. */
async function findIssuer({ identity, issuer }: InitSettings): Promise<FoundIssuer> {
  const { origin, pathname } = new URL(issuer)
  const base = pathname.replace(/\/$/, '')
  const guess = { jwks: undefined, guessed: false, pushed: `${base}/request`, authorization: `${base}/auth` }
  if (identity === '') return guess
  const isSameOrigin = origin === identity
  try {
    const signal = AbortSignal.timeout(DISCOVERY_MS)
    const { jwksUri, metadata } = await discover(issuer, signal, identity + base)
    const keys = new URL(jwksUri)
    const atBackend = keys.origin === origin ? identity + keys.pathname + keys.search : keys.href
    const pathOf = (name: string, fallback: string): string => {
      const url = String(metadata[name])
      return URL.canParse(url) && new URL(url).origin === origin ? new URL(url).pathname : fallback
    }
    return {
      jwks: isSameOrigin ? undefined : atBackend,
      guessed: false,
      pushed: pathOf('pushed_authorization_request_endpoint', guess.pushed),
      authorization: pathOf('authorization_endpoint', guess.authorization),
    }
  } catch {
    return isSameOrigin ? guess : { ...guess, jwks: `${identity}${base}/certs`, guessed: true }
  }
}

const GUESSED =
  'The identity backend has no discovery document: tokens.jwks and the routes of its endpoints are guesses. Correct them if the second step fails.\n'

function nextSteps(file: string, settings: InitSettings): string {
  const quoted = /^[\w./-]+$/.test(file) ? file : `'${file.replaceAll("'", `'\\''`)}'`
  const config = file === DEFAULT_FILE ? '' : ` --config ${quoted}`
  const hasPassword = splitRedis(settings.redis).password !== undefined
  // The call uses the callers' host: the gateway refuses others, such as localhost.
  const call = hasTokens(settings)
    ? `-H 'Host: ${new URL(settings.api).hostname}' -H "Authorization: Bearer $TOKEN" http://127.0.0.1:8080/v3/…`
    : `-i${settings.for === 'api' ? '' : ' -H "X-Api-Key: $KEY"'} http://127.0.0.1:8080/`
  return `
Next:
${hasPassword ? `  export ${PASSWORD}=…  # it is not in the file\n` : ''}\
  sluice check${config}  # what does it mean?
  sluice check${config} --connect  # does every server that it names answer?
  sluice start${config}
  curl ${call}`
}
