import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { createSecureContext } from 'node:tls'
import { type KeySet, readKeySet } from '../authenticate/token/key-set.ts'
import { ConfigError, type Issue, type Path } from './yaml/issue.ts'

const REASONS: Readonly<Record<string, string>> = {
  ENOENT: 'does not exist',
  ENOTDIR: 'does not exist',
  EISDIR: 'is a directory, not a file',
  EACCES: 'may not be read by this user',
  EPERM: 'may not be read by this user',
}

/** Standard input, which ends once it is read, for every reload. */
let standardInput: Promise<Buffer> | undefined

/** The bytes of a file, or of standard input for `-`, as text; a `ConfigError` says why not. */
export async function readText(file: string): Promise<string> {
  let bytes: Buffer
  try {
    bytes = file === '-' ? await (standardInput ??= buffer(process.stdin)) : await readFile(file)
  } catch (error) {
    throw new ConfigError([{ where: file, path: '', message: reason(error) }])
  }
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch {
    const where = file === '-' ? 'stdin' : file
    throw new ConfigError([{ where, path: '', message: 'is not UTF-8 text; save it as UTF-8' }])
  }
}

/** Reads the secret that `file:/path` stands for; undefined of any other value. */
export async function readSecret(
  value: unknown,
  path: Path,
  directory: string,
): Promise<{ readonly value: string } | Issue | undefined> {
  if (typeof value !== 'string' || !value.startsWith('file:')) return undefined
  const file = resolve(directory, value.slice('file:'.length).replace(/^\/\/\//, '/'))
  try {
    const secret = (await readFile(file, 'utf8')).replace(/\r?\n$/, '')
    return secret === '' ? { path, message: `is to be read from ${file}, which is empty` } : { value: secret }
  } catch (error) {
    return { path, message: `is to be read from ${file}, which ${reason(error)}` }
  }
}

/** Words why a file could not be read, to follow its name. */
export function reason(error: unknown): string {
  const { code = '', message } = error as NodeJS.ErrnoException
  return REASONS[code] ?? `cannot be read: ${code || message}`
}

type File = 'cert' | 'key' | 'ca' | 'clientCa'
type Files = Readonly<Partial<Record<File, string | undefined>>>

/** Reads the files that a configuration names, from `directory`; what is wrong with them is added to `mistakes`. */
export function createFileReader(directory: string, mistakes: Issue[]) {
  /** A file and what `parse` makes of it, which returns a string to say what is wrong. */
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
    /** Reads the PEM files of a section of TLS into it: each sound, and the key that of the certificate. */
    async tls<T extends Files>(section: T, path: Path): Promise<T & Record<File, string | undefined>> {
      const cert = await read([...path, 'cert'], section.cert, parseCertificates)
      const key = await read([...path, 'key'], section.key, parseKey)
      if (cert && key && !cert.parsed.checkPrivateKey(key.parsed)) {
        const message = `is not the key of the certificate in ${section.cert}; write the one that it was made with`
        mistakes.push({ path: [...path, 'key'], message })
      }
      const ca = await read([...path, 'ca'], section.ca, parseCertificates)
      const clientCa = await read([...path, 'clientCa'], section.clientCa, parseCertificates)
      return { ...section, cert: cert?.text, key: key?.text, ca: ca?.text, clientCa: clientCa?.text }
    },

    /** Returns the absolute path of a JWK Set. */
    async keySet(name: string, path: Path): Promise<string> {
      await read(path, name, parseKeySet)
      return resolve(directory, name)
    },
  }
}

/** Where the certificates and keys of sections are read from. */
export function filesOf(sections: readonly (Files | undefined)[], directory: string): readonly string[] {
  return sections
    .flatMap((tls) => [tls?.cert, tls?.key, tls?.ca, tls?.clientCa])
    .filter((path) => path !== undefined)
    .map((path) => resolve(directory, path))
}

/** Returns the first certificate of a chain, or what is wrong if any of them is broken. */
function parseCertificates(pem: string): X509Certificate | string {
  try {
    createSecureContext({ cert: pem, ca: pem })
    return new X509Certificate(pem)
  } catch {
    return 'holds no certificate in PEM, or a broken one'
  }
}

function parseKey(pem: string): KeyObject | string {
  if (pem.includes('ENCRYPTED')) return 'is locked with a passphrase; write a key without one'
  try {
    return createPrivateKey(pem)
  } catch {
    return 'holds no private key in PEM, or a broken one'
  }
}

async function parseKeySet(text: string): Promise<KeySet | string> {
  let problem = 'holds no key that could verify a token'
  try {
    const keys = await readKeySet(JSON.parse(text))
    if (keys.keys.length > 0) return keys
  } catch (error) {
    problem = error instanceof SyntaxError ? 'is no JSON' : (error as Error).message
  }
  return `${problem}; write the issuer's JWK Set there, or its URL here`
}
