import { dirname, join } from 'node:path'
import { withTimeout } from '../../authenticate/token/fetch-json.ts'
import { discover } from '../../authenticate/token/key-set.ts'
import { loadConfig } from '../../config/load.ts'
import {
  DEFAULT_FILE,
  type Args,
  type Io,
  refuseOutput,
  textOf,
  UsageError,
  writeLines,
  writeOutput,
} from '../io.ts'
import { schemaText } from '../schema.ts'
import { type InitSettings, promptForMissing } from './prompts.ts'
import { configText, type FoundIssuer, PASSWORD, splitRedis } from './template.ts'

const DISCOVERY_MS = 2000
const SCHEMA = 'sluice.schema.json'

/** Writes a configuration for the addresses that are given or asked for, with the schema beside it, and prints what to do next. */
export async function run(args: Args, io: Io): Promise<void> {
  const file = textOf(args, 'output')!
  const isFile = file !== '-'
  const isForced = args['force'] === true
  // Before anything is asked.
  if (isFile) refuseOutput(file, isForced)
  const answers = await promptForMissing(args, io)
  const found = await findIssuer(answers)
  const text = configText(answers, found, isFile)
  const { password } = splitRedis(answers.redis)
  await loadConfig({ file, text, env: { [PASSWORD]: password } }).catch((error: Error) => {
    throw new UsageError(`These answers make no configuration that can be used:\n${error.message}`)
  })
  if (isFile) {
    await writeOutput(file, text, isForced ? 'w' : 'wx')
    await writeOutput(join(dirname(file), SCHEMA), schemaText())
  } else io.stdout.write(text)
  if (args['json'] === true && isFile) {
    writeLines(io.stdout, JSON.stringify({ file, schema: join(dirname(file), SCHEMA) }))
    return
  }
  writeLines(isFile ? io.stdout : io.stderr, nextSteps(file, found, password !== undefined))
  writeLines(isFile ? io.stdout : io.stderr, firstCall(answers))
}

/**
 * Finds the keys and the endpoints of the identity backend. Callers, and so the issuer's name, lead to the gateway itself: the
 * backend is asked for its discovery document where it answers, and its keys are read there too, so that they do not depend on
 * the gateway.
 */
async function findIssuer({ identity, issuer }: InitSettings): Promise<FoundIssuer> {
  const { origin, pathname } = new URL(issuer)
  const base = pathname.replace(/\/$/, '')
  const guess = { jwks: undefined, guessed: false, pushed: `${base}/request`, authorization: `${base}/auth` }
  if (identity === '') return guess
  try {
    const { jwksUri, metadata } = await withTimeout(DISCOVERY_MS, (signal) =>
      discover(issuer, signal, identity + base),
    )
    const uri = new URL(jwksUri)
    const here = uri.origin === origin ? identity + uri.pathname + uri.search : uri.href
    const pathOf = (name: string, otherwise: string): string => {
      const url = String(metadata[name])
      return URL.canParse(url) && new URL(url).origin === origin ? new URL(url).pathname : otherwise
    }
    return {
      jwks: origin === identity ? undefined : here,
      guessed: false,
      pushed: pathOf('pushed_authorization_request_endpoint', guess.pushed),
      authorization: pathOf('authorization_endpoint', guess.authorization),
    }
  } catch {
    return origin === identity ? guess : { ...guess, jwks: `${identity}${base}/certs`, guessed: true }
  }
}

function nextSteps(file: string, { guessed }: FoundIssuer, hasPassword: boolean): string {
  const isFile = file !== '-'
  const name = isFile ? file : 'FILE'
  const quoted = /^[\w./-]+$/.test(name) ? name : `'${name.replaceAll("'", `'\\''`)}'`
  const config = name === DEFAULT_FILE ? '' : ` --config ${quoted}`
  return [
    ...(isFile ? [`Wrote ${file}, and ${SCHEMA} beside it, by which editors complete it.`] : []),
    ...(guessed
      ? [
          'The identity backend gave no discovery document: tokens.jwks and the routes of its endpoints are guesses. Correct them if the second step fails.',
        ]
      : []),
    '',
    'Next:',
    ...(hasPassword ? [`  export ${PASSWORD}=…  # it is not in the file`] : []),
    `  sluice check${config}  # what it means`,
    `  sluice check${config} --connect  # does all that it names answer?`,
    `  sluice start${config}`,
  ].join('\n')
}

/** A call by the name that callers use: the gateway refuses others, such as localhost. */
function firstCall({ api }: InitSettings): string {
  return `  curl -H 'Host: ${new URL(api).hostname}' -H "Authorization: Bearer $TOKEN" http://127.0.0.1:8080/v3/…`
}
