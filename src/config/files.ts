import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import { createSecureContext } from 'node:tls'
import { type KeySet, readKeySet } from '../authenticate/token/key-set.ts'
import { reason } from './text.ts'
import type { Issue, Path } from './yaml/issue.ts'

type File = 'cert' | 'key' | 'ca' | 'clientCa'
type Files = Readonly<Partial<Record<File, string | undefined>>>

/** Creates the reader of the files that a configuration names, relative to `directory`. Adds mistakes in them to `mistakes`. */
export function createFileReader(directory: string, mistakes: Issue[]) {
  /** Reads and parses a file. `parse` may return a string, which is the mistake. */
  async function read<T>(
    path: Path,
    name: string | undefined,
    parse: (text: string) => T | string | Promise<T | string>,
  ) {
    if (name === undefined) return undefined
    const file = resolve(directory, name)
    const text = await readFile(file, 'utf8').catch((error: Error) => error)
    const parsed = text instanceof Error ? reason(text) : await parse(text)
    if (typeof text === 'string' && typeof parsed !== 'string') return { text, parsed }
    mistakes.push({ path, message: `names ${file}, which ${parsed as string}` })
    return undefined
  }

  return {
    /** Reads the PEM files of a TLS section, and checks that the key belongs to the certificate. */
    async tls<T extends Files>(section: T, path: Path): Promise<T & Record<File, string | undefined>> {
      const cert = await read([...path, 'cert'], section.cert, parseCertificates)
      const key = await read([...path, 'key'], section.key, parseKey)
      const ca = await read([...path, 'ca'], section.ca, parseCertificates)
      const clientCa = await read([...path, 'clientCa'], section.clientCa, parseCertificates)
      const message = `is not the key of the certificate in ${section.cert}; write the one that belongs to it`
      if (cert && key && !cert.parsed.checkPrivateKey(key.parsed))
        mistakes.push({ path: [...path, 'key'], message })
      return { ...section, cert: cert?.text, key: key?.text, ca: ca?.text, clientCa: clientCa?.text }
    },

    async keySet(name: string, path: Path): Promise<string> {
      await read(path, name, parseKeySet)
      return resolve(directory, name)
    },
  }
}

export function filesOf(sections: readonly (Files | undefined)[], directory: string): readonly string[] {
  return sections
    .flatMap((tls) => [tls?.cert, tls?.key, tls?.ca, tls?.clientCa])
    .filter((path) => path !== undefined)
    .map((path) => resolve(directory, path))
}

function parseCertificates(pem: string): X509Certificate | string {
  try {
    createSecureContext({ cert: pem, ca: pem })
    return new X509Certificate(pem)
  } catch {
    return 'contains no valid certificate in PEM'
  }
}

function parseKey(pem: string): KeyObject | string {
  if (pem.includes('ENCRYPTED')) return 'is encrypted with a passphrase; write a key without one'
  try {
    return createPrivateKey(pem)
  } catch {
    return 'contains no valid private key in PEM'
  }
}

async function parseKeySet(text: string): Promise<KeySet | string> {
  let problem = 'contains no key that could verify a token'
  try {
    const keys = await readKeySet(JSON.parse(text))
    if (keys.keys.length > 0) return keys
  } catch (error) {
    problem = error instanceof SyntaxError ? 'is not JSON' : (error as Error).message
  }
  return `${problem}; write the issuer's JWK Set there, or its URL here`
}
