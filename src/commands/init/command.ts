import { existsSync } from 'node:fs'
import { mkdir, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { createKeyText, hashOfKey } from '../../authenticate/key/key-text.ts'
import { discover } from '../../authenticate/jose/key-set.ts'
import { loadConfig } from '../../config/load.ts'
import { jsonSchema } from '../../config/schema.ts'
import { type Args, textOf, UsageError } from '../args.ts'
import { DEFAULT_FILE } from '../configuration.ts'
import { fillIn } from '../fill-in.ts'
import { type Io, print, writeLines } from '../io.ts'
import { changeKeys } from '../keys/keys-store.ts'
import { programOf, shellWord } from '../program.ts'
import { formatSchema } from '../schema.ts'
import { hasTokens, type InitSettings, matchesOf, MEMORY, promptForMissing } from './prompts.ts'

const DISCOVERY_MS = 2000
const SCHEMA = 'sluice.schema.json'
const KEYS = 'keys.yaml'
const FIRST_CLIENT = 'first-client'

/**
 * Writes a configuration for the given addresses, prompting for missing ones, and its schema, and
 * prints the next steps.
 */
export async function run(args: Args, io: Io): Promise<void> {
  const file = textOf(args, 'output')!
  const isFile = file !== '-'
  const overwrites = args['force'] === true
  // Before the first prompt.
  if (isFile && !overwrites && existsSync(file))
    throw new Error(`${file} exists already. Give --force to overwrite it, or another --output.`)
  if (isFile) await mkdir(dirname(file), { recursive: true })
  const settings = await promptForMissing(args, io)
  const tokens = hasTokens(settings)
  const redis = redisValues(settings.redis)
  const keysFile = join(dirname(file), KEYS)
  const needsKey = settings.for === 'api-keys' && isFile && !existsSync(keysFile)
  const firstKey = needsKey ? createKeyText() : undefined
  const values = {
    ...redis,
    ...(tokens ? await tokenValues(settings) : { service: true, [settings.for]: true }),
    firstkey: firstKey ?? false,
    data: quoted(settings.data),
    schema: isFile,
    program: programOf(io),
    flag: file === DEFAULT_FILE ? '' : ` --config ${isFile ? shellWord(file) : 'FILE'}`,
  }
  const sections = tokens ? 'init/open-banking.txt' : 'init/api.txt'
  const text = fillIn('init/beginning.txt', values) + fillIn(sections, values)
  // The keys are written last.
  await loadConfig({ file, text, env: { REDIS_PASSWORD: redis.password }, offline: needsKey }).catch(
    (error: Error) => {
      throw new UsageError(`These values do not make a valid configuration:\n${error.message}`)
    },
  )
  const steps = fillIn('init/next-steps.txt', values).trimEnd()
  if (!isFile) {
    io.stdout.write(text)
    writeLines(io.stderr, steps)
    return
  }
  const schema = join(dirname(file), SCHEMA)
  // The file may have been made since.
  await writeFile(file, text, { flag: overwrites ? 'w' : 'wx' })
  await writeFile(schema, formatSchema(jsonSchema()))
  if (firstKey !== undefined)
    await changeKeys(keysFile, (keys) => keys.add({ client: FIRST_CLIENT, sha256: hashOfKey(firstKey) }))
  const ofKeys = firstKey === undefined ? {} : { keys: keysFile, key: firstKey }
  print(io, args, { file, schema, ...ofKeys }, () => `Wrote ${file}, and ${SCHEMA} for editors.\n${steps}`)
}

/** Splits the credentials from the URL of Redis. The password is not written. */
function redisValues(redis: string) {
  const { username, password } = new URL(redis === MEMORY ? 'memory:' : redis)
  return {
    memory: redis === MEMORY,
    redis: redis !== MEMORY && quoted(redis.replace(/^(rediss?:\/\/).*@/, '$1')),
    username: username && quoted(decodeURIComponent(username)),
    password: decodeURIComponent(password),
  }
}

/** Throws a UsageError if the open routes of the issuer would match the API too. */
async function tokenValues({ identity, provider, issuer, audience, api, open }: InitSettings) {
  const { origin, hostname: host, pathname } = new URL(issuer)
  const { hostname: apiHost, pathname: apiPath } = new URL(api)
  const path = pathname.replace(/\/$/, '')
  const isShared = apiHost === host
  const isWithin = `${apiPath}/`.toLowerCase().startsWith(`${path}/`.toLowerCase())
  if (identity !== '' && isShared && isWithin)
    throw new UsageError(
      `The issuer and the API share ${host}, and no path divides them: give --api another host.`,
    )
  const openPaths = isShared ? [`${path}/*`, '/.well-known/*'] : ['/*']
  const hosts = identity === '' || isShared ? [apiHost] : [host, apiHost]
  // Reads the document at the backend, because the issuer's URL may be that of the gateway itself.
  const signal = AbortSignal.timeout(DISCOVERY_MS)
  const reading = identity === '' ? undefined : discover(issuer, signal, identity + path)
  const found = await reading?.catch(() => undefined)
  const pathOf = (name: string, fallback: string): string => {
    const url = String(found?.metadata[name])
    return url.startsWith(`${origin}/`) ? new URL(url).pathname : path + fallback
  }
  const keys = found && new URL(found.jwksUri)
  const jwks = keys?.origin === origin ? identity + keys.pathname + keys.search : keys?.href
  return {
    tokens: true,
    [provider]: true,
    issuer: quoted(issuer),
    audience: quoted(audience),
    hosts: hosts.map(quoted).join(', '),
    apihost: apiHost,
    identity: identity && quoted(identity),
    jwks: jwks !== undefined && quoted(jwks),
    discovered: jwks === undefined,
    guessed: identity !== '' && jwks === undefined,
    pushed: quoted(`POST ${host}${pathOf('pushed_authorization_request_endpoint', '/request')}`),
    authorization: quoted(`GET,POST ${host}${pathOf('authorization_endpoint', '/auth')}`),
    rest: identity === '' ? [] : openPaths.map((path) => quoted(host + path)),
    open: matchesOf(open).map(quoted),
  }
}

/** Formats a string as YAML without variables. */
const quoted = (text: string): string => JSON.stringify(text.replaceAll('${', () => '$${'))
