import { readFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import { readKeySet } from '../../authenticate/token/key-set.ts'
import { httpUrl } from '../sections/addresses.ts'
import { unreadable } from '../files.ts'
import type { Settings, Tokens } from '../schema.ts'
import type { Mistake } from '../yaml/source.ts'
import type { IssuerSettings } from '../sections/tokens.ts'

/** The issuers, each with the place of its keys; a file that cannot be read is added to `mistakes`. */
export async function compileTokens(
  tokens: Settings['tokens'],
  directory: string,
  mistakes: Mistake[],
): Promise<readonly Tokens[]> {
  if (tokens === undefined) return []
  if (!Array.isArray(tokens)) return [await compileIssuer(tokens, ['tokens'], directory, mistakes)]
  return Promise.all(tokens.map((issuer, i) => compileIssuer(issuer, ['tokens', i], directory, mistakes)))
}

async function compileIssuer(
  issuer: IssuerSettings,
  path: Mistake['path'],
  directory: string,
  mistakes: Mistake[],
): Promise<Tokens> {
  const { jwks } = issuer
  if (jwks === undefined) return { ...issuer, jwks }
  if (httpUrl(jwks)) return { ...issuer, jwks: { url: jwks } }
  const file = resolve(directory, jwks)
  const problem = (await unreadable(file)) ?? (await noKeySet(file))
  if (problem !== undefined) mistakes.push({ path: [...path, 'jwks'], message: problem })
  return { ...issuer, jwks: { file } }
}

/** What is wrong with a file that should hold a JWK Set. */
async function noKeySet(file: string): Promise<string | undefined> {
  const wrong = (what: string) =>
    `names ${file}, which ${what}; write the issuer's JWK Set there, or its URL here`
  try {
    const { size } = await readKeySet(JSON.parse(await readFile(file, 'utf8')))
    if (size > 0) return undefined
    return wrong('holds no key that could verify a token')
  } catch (error) {
    return wrong(error instanceof SyntaxError ? 'is no JSON' : (error as Error).message)
  }
}
