import { readFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import { readKeySet } from '../../authenticate/token/key-set.ts'
import { reason } from '../files.ts'
import type { Client, Settings, Tokens } from '../schema.ts'
import { httpUrl } from '../sections/addresses.ts'
import type { IssuerSettings } from '../sections/tokens.ts'
import type { Mistake, Path } from '../yaml/problem.ts'

/** The issuers, each with where its keys are; a file that cannot be read is added to `mistakes`. */
export async function compileTokens(
  tokens: Settings['tokens'],
  directory: string,
  mistakes: Mistake[],
): Promise<readonly Tokens[]> {
  async function compile({ jwks, ...issuer }: IssuerSettings, path: Path): Promise<Tokens> {
    if (jwks === undefined) return { ...issuer, jwks }
    if (httpUrl(jwks)) return { ...issuer, jwks: { url: jwks } }
    const file = resolve(directory, jwks)
    const problem = await noKeySet(file)
    if (problem !== undefined)
      mistakes.push({ path: [...path, 'jwks'], message: `names ${file}, which ${problem}` })
    return { ...issuer, jwks: { file } }
  }
  if (tokens === undefined) return []
  if (!Array.isArray(tokens)) return [await compile(tokens, ['tokens'])]
  return Promise.all(tokens.map((issuer, i) => compile(issuer, ['tokens', i])))
}

/** What is wrong with a file that should hold a JWK Set. */
async function noKeySet(file: string): Promise<string | undefined> {
  let wrong = 'holds no key that could verify a token'
  try {
    const { size } = await readKeySet(JSON.parse(await readFile(file, 'utf8')))
    if (size > 0) return undefined
  } catch (error) {
    if (error instanceof Error && 'code' in error) return reason(error)
    wrong = error instanceof SyntaxError ? 'is no JSON' : (error as Error).message
  }
  return `${wrong}; write the issuer's JWK Set there, or its URL here`
}

/** What is wrong with the keys of a client. */
export async function uselessKeys(
  algorithm: Client['requestObjectSigningAlg'],
  jwks: { readonly keys: readonly object[] },
): Promise<string | undefined> {
  const keys = await readKeySet(jwks).catch(() => undefined)
  if (keys === undefined || keys.size === 0) {
    return 'hold no key that verifies signatures; write a public one: RSA of 2048 to 4096 bits with an exponent of at most 64, P-256, P-384 or Ed25519'
  }
  if (algorithm === undefined || algorithm === 'none' || algorithm.startsWith('HS')) return undefined
  return keys.find(algorithm, undefined).length > 0
    ? undefined
    : `hold no key for ${algorithm}, with which requestObjectSigningAlg says that it signs; add it`
}
