import { dirname, join } from 'node:path'
import { withTimeout } from '../../authenticate/token/fetch-json.ts'
import { discover } from '../../authenticate/token/jwks.ts'
import { loadConfig } from '../../config/load.ts'
import { type Given, type Io, refuseOutput, textOf, writeLines, writeOutput } from '../io.ts'
import { schemaText } from '../schema.ts'
import { type Answers, answersOf } from './answers.ts'
import { configText, type Keys, PASSWORD, splitRedis } from './template.ts'

const DISCOVERY_MS = 2000
const SCHEMA = 'sluice.schema.json'

/** Writes a configuration for the addresses that are given or asked for, with the schema beside it, and prints what to do next. */
export async function run(given: Given, io: Io): Promise<void> {
  const file = textOf(given, 'output')!
  const isFile = file !== '-'
  const isForced = given['force'] === true
  // Before anything is asked.
  if (isFile) refuseOutput(file, isForced)
  const answers = await answersOf(given, io)
  const keys = await findKeys(answers)
  const text = configText(answers, keys, isFile)
  const { password } = splitRedis(answers.redis)
  await loadConfig({ file, text, env: { [PASSWORD]: password } })
  if (isFile) {
    await writeOutput(file, text, isForced ? 'w' : 'wx')
    await writeOutput(join(dirname(file), SCHEMA), schemaText())
  } else io.stdout.write(text)
  writeLines(isFile ? io.stdout : io.stderr, nextSteps(file, keys, password !== undefined))
  writeLines(isFile ? io.stdout : io.stderr, firstCall(answers))
}

/**
 * Finds where the keys of the issuer are. Callers, and so the issuer's name, lead to the gateway itself: a backend that answers
 * elsewhere is asked for its discovery document there, and its keys are read there too, so that they do not depend on the gateway.
 */
async function findKeys({ identity, issuer }: Answers): Promise<Keys> {
  const { origin, pathname } = new URL(issuer)
  if (origin === identity) return { url: undefined, guessed: false }
  const base = identity + pathname.replace(/\/$/, '')
  try {
    const uri = new URL(await withTimeout(DISCOVERY_MS, (signal) => discover(issuer, signal, base)))
    const url = uri.origin === origin ? identity + uri.pathname + uri.search : uri.href
    return { url, guessed: false }
  } catch {
    return { url: `${base}/certs`, guessed: true }
  }
}

function nextSteps(file: string, { guessed }: Keys, hasPassword: boolean): string {
  const isFile = file !== '-'
  const name = isFile ? file : 'FILE'
  const config = `--config ${/^[\w./-]+$/.test(name) ? name : `'${name.replaceAll("'", `'\\''`)}'`}`
  return [
    ...(isFile ? [`Wrote ${file}, and ${SCHEMA} beside it, by which editors complete it.`] : []),
    ...(guessed
      ? [
          'The identity backend gave no discovery document: tokens.jwks is a guess. Correct it if the second step fails.',
        ]
      : []),
    '',
    'Next:',
    ...(hasPassword ? [`  export ${PASSWORD}=…  # it is not in the file`] : []),
    `  sluice check ${config}  # what it means`,
    `  sluice check ${config} --connect  # does all that it names answer?`,
    `  sluice start ${config}`,
  ].join('\n')
}

/** A call by the name that callers use: the gateway refuses others, such as localhost. */
function firstCall({ api }: Answers): string {
  return `  curl -H 'Host: ${new URL(api).hostname}' -H "Authorization: Bearer $TOKEN" http://127.0.0.1:8080/v3/…`
}
