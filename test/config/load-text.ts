import { createPrivateKey } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { loadConfig, type Loaded } from '../../src/config/load.ts'
import type { FlagOverride } from '../../src/config/main-file.ts'
import { ConfigError } from '../../src/config/yaml/issue.ts'
import { makeAuthority } from '../helpers/authority.ts'
import { makeCertificate } from '../helpers/self-signed.ts'

const SECTIONS = {
  store: 'store: memory',
  upstreams: 'upstreams:\n  data: { url: http://data.internal:4000 }',
  tokens: 'tokens: { issuer: https://id.example.com/oidc, audience: https://api.example.com }',
  limits: [
    'limits:',
    '  requests: { per: [client], limit: 1000, window: 1m }',
    '  sync: { per: [client, connection], limit: 1, window: 5s }',
  ].join('\n'),
  routes: [
    'routes:',
    '  - { match: "POST /sync/:connection", upstream: data, authenticate: bearer, limits: [requests, sync] }',
    '  - { match: "/*", upstream: data, authenticate: bearer, limits: [requests] }',
  ].join('\n'),
} as const

const own = makeCertificate('gateway')
const other = makeCertificate('other')
const authority = makeAuthority('clients')
const list = authority.list([])

/** PEM files, valid and invalid. */
export const BESIDE = {
  'cert.pem': own.cert,
  'key.pem': own.key,
  'other.pem': other.key,
  'locked.pem': createPrivateKey(own.key).export({
    type: 'pkcs8',
    format: 'pem',
    cipher: 'aes-256-cbc',
    passphrase: 'x',
  }) as string,
  'broken.pem': own.cert.replace(/\n.{20}/, '\n'),
  'chain.pem': `${own.cert}\n${other.cert}`,
  'cert.der': 'hunter2',
  'authority.pem': authority.cert,
  'authorities.pem': authority.cert + makeAuthority('more clients').cert,
  'list.pem': list,
  'half-list.pem': `${list}-----BEGIN X509 CRL-----\nAAAA\n`,
  'endless-list.pem': authority.list([], { nextUpdateMs: 'none' }),
  'other-list.pem': makeAuthority('clients').list([]),
}

/** Appends the sections that a valid file needs and the snippet lacks. */
export function completed(snippet: string): string {
  const missing = Object.entries(SECTIONS).filter(([key]) => !new RegExp(`^"?${key}"?:`, 'm').test(snippet))
  return [snippet, ...missing.map(([, section]) => section), ''].join('\n')
}

/** Loads a text as the file `sluice.yaml`; if other files are given, from a directory on disk with them. */
export async function load(
  text: string,
  env: Record<string, string> = {},
  overrides: readonly FlagOverride[] = [],
  beside?: Readonly<Record<string, string | Uint8Array>>,
  nowMs = Date.now(),
): Promise<Loaded> {
  const options = { file: 'sluice.yaml', env, overrides, nowMs }
  if (beside === undefined) return wrapped(loadConfig({ ...options, text }), process.cwd())
  const directory = await mkdtemp(join(tmpdir(), 'sluice-config-'))
  try {
    for (const [name, content] of Object.entries({ 'sluice.yaml': text, ...beside }))
      await writeFile(join(directory, name), content)
    return await wrapped(loadConfig({ ...options, file: join(directory, 'sluice.yaml') }), directory)
  } finally {
    await rm(directory, { recursive: true })
  }
}

async function wrapped(loading: Promise<Loaded>, directory: string): Promise<Loaded> {
  try {
    return await loading
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error
    const message = error.message.replaceAll(`${directory}/`, '').replaceAll(directory, '.')
    throw new Error(message, { cause: error })
  }
}

/** Returns the lines of the `ConfigError`; an empty list if the text is valid. */
export async function mistakesIn(...from: Parameters<typeof load>): Promise<readonly string[]> {
  try {
    await load(...from)
    return []
  } catch (error) {
    if (!((error as Error).cause instanceof ConfigError)) throw error
    return (error as Error).message.split('\n')
  }
}
