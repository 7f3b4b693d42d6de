import { createPrivateKey } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { ConfigError, loadConfig, type Loaded, type Override } from '../../src/config/load.ts'
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

/** PEM files, sound and broken. */
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
}

/** The snippet, and after it whatever else a sound file needs. */
export function completed(snippet: string): string {
  const missing = Object.entries(SECTIONS).filter(([key]) => !new RegExp(`^"?${key}"?:`, 'm').test(snippet))
  return [snippet, ...missing.map(([, section]) => section), ''].join('\n')
}

/** Loads a text as the file `sluice.yaml`. */
export async function load(
  text: string | Uint8Array,
  env: Record<string, string> = {},
  overrides: readonly Override[] = [],
  beside: Readonly<Record<string, string>> = {},
  nowMs = Date.now(),
): Promise<Loaded> {
  const directory = await mkdtemp(join(tmpdir(), 'sluice-config-'))
  try {
    const file = join(directory, 'sluice.yaml')
    await writeFile(file, text)
    for (const [name, content] of Object.entries(beside)) await writeFile(join(directory, name), content)
    return await loadConfig({ file, env, overrides, nowMs })
  } catch (error) {
    throw error instanceof ConfigError
      ? new Error(error.message.replaceAll(`${directory}/`, '').replaceAll(directory, '.'), { cause: error })
      : error
  } finally {
    await rm(directory, { recursive: true })
  }
}

/** The lines that loading a text ends in; none where the text is sound. */
export async function mistakesIn(...from: Parameters<typeof load>): Promise<readonly string[]> {
  try {
    await load(...from)
    return []
  } catch (error) {
    if (!((error as Error).cause instanceof ConfigError)) throw error
    return (error as Error).message.split('\n')
  }
}
