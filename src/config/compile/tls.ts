import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import { createSecureContext } from 'node:tls'
import { reason } from '../files.ts'
import type { Mistake, Path } from '../yaml/problem.ts'

type File = 'cert' | 'key' | 'ca' | 'clientCa'
type Files = Readonly<Partial<Record<File, string | undefined>>>

/** Reads the PEM files that a section of TLS names into it: each sound, and the key that of the certificate. */
export type ReadTls = <T extends Files>(
  section: T,
  path: Path,
) => Promise<T & Readonly<Record<File, string | undefined>>>

/** Reads files from `directory`; what is wrong with them is added to `mistakes`. */
export function createTlsReader(directory: string, mistakes: Mistake[]): ReadTls {
  async function read<K>(path: Path, name: string | undefined, parse: (pem: string) => K | string) {
    if (name === undefined) return undefined
    const file = resolve(directory, name)
    let problem: string
    try {
      const text = await readFile(file, 'utf8')
      const isPem = /^-----BEGIN /m.test(text)
      const parsed = isPem ? parse(text) : 'holds no PEM text; convert it with openssl'
      if (typeof parsed !== 'string') return { text, parsed }
      problem = parsed
    } catch (error) {
      problem = reason(error)
    }
    mistakes.push({ path, message: `names ${file}, which ${problem}` })
    return undefined
  }
  return async (section, path) => {
    const cert = await read([...path, 'cert'], section.cert, readCertificates)
    const key = await read([...path, 'key'], section.key, readKey)
    if (cert && key && !cert.parsed.checkPrivateKey(key.parsed)) {
      const message = `is not the key of the certificate in ${section.cert}; write the one that it was made with`
      mistakes.push({ path: [...path, 'key'], message })
    }
    const ca = await read([...path, 'ca'], section.ca, readCertificates)
    const clientCa = await read([...path, 'clientCa'], section.clientCa, readCertificates)
    return { ...section, cert: cert?.text, key: key?.text, ca: ca?.text, clientCa: clientCa?.text }
  }
}

/** Where the certificates and keys of sections are read from. */
export function filesOf(sections: readonly (Files | undefined)[], directory: string): readonly string[] {
  return sections
    .flatMap((tls) => [tls?.cert, tls?.key, tls?.ca, tls?.clientCa])
    .filter((path) => path !== undefined)
    .map((path) => resolve(directory, path))
}

/** The first certificate of a chain; a string says what is wrong with any of them. */
function readCertificates(pem: string): X509Certificate | string {
  try {
    createSecureContext({ cert: pem, ca: pem })
    return new X509Certificate(pem)
  } catch {
    return 'holds no certificate, or a broken one'
  }
}

function readKey(pem: string): KeyObject | string {
  if (pem.includes('ENCRYPTED')) return 'is locked with a passphrase; write a key without one'
  try {
    return createPrivateKey(pem)
  } catch {
    return 'holds no private key, or a broken one'
  }
}
