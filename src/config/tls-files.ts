import { createPrivateKey, X509Certificate } from 'node:crypto'
import { createSecureContext, type SecureContextOptions } from 'node:tls'
import { foreignMistake, listMistake, listsIn, missingMistake } from './revocation-lists.ts'
import type { Issue, Path } from './yaml/issue.ts'

type Files = Readonly<Partial<Record<'cert' | 'key' | 'ca' | 'clientCa', string | undefined>>>
interface ServerFiles extends Files {
  readonly crl?: readonly string[] | undefined
  readonly ciphers?: string | undefined
}

/** Returns the mistake in the text of a file; undefined if there is none. */
export type Check = (text: string) => string | undefined | Promise<string | undefined>
/** Reads a file; resolves with undefined if it has a mistake. */
type Read = (path: Path, name: string | undefined, check: Check) => Promise<string | undefined>

/** Creates the functions that read the PEM files of a section `tls`, and add the mistakes between them to `mistakes`. */
export function createTlsReader(read: Read, mistakes: Issue[]) {
  /**
   * Replaces the names of PEM files by their texts, and checks that the key belongs to the
   * certificate.
   */
  async function readTls<T extends Files>(section: T | undefined, ...path: Path) {
    if (section === undefined) return undefined
    const cert = await read([...path, 'cert'], section.cert, certificateMistake)
    const key = await read([...path, 'key'], section.key, keyMistake)
    const ca = await read([...path, 'ca'], section.ca, certificateMistake)
    const clientCa = await read([...path, 'clientCa'], section.clientCa, certificateMistake)
    const message = `is not the key of the certificate in ${section.cert}; write the key that is`
    if (cert && key && !new X509Certificate(cert).checkPrivateKey(createPrivateKey(key)))
      mistakes.push({ path: [...path, 'key'], message })
    return { ...section, cert, key, ca, clientCa } as Required<T>
  }

  /** Replaces the names of a listener's PEM files by their texts, also those of its revocation lists. */
  async function readServerTls<T extends ServerFiles>(section: T | undefined, ...path: Path) {
    if (section === undefined) return undefined
    const tls = await readTls(section, ...path)
    const { clientCa } = tls!
    const at = [...path, 'crl']
    const names = section.crl ?? []
    const isMine = (pem: string) => listMistake(pem) ?? (clientCa && foreignMistake(pem, clientCa))
    const texts = await Promise.all(
      names.map((name, i) => read(names.length > 1 ? [...at, i] : at, name, isMine)),
    )
    const crl = texts.flatMap((text) => (text === undefined ? [] : listsIn(text).map(({ pem }) => pem)))
    const isComplete = texts.every((text) => text !== undefined)
    const missing = clientCa && names.length > 0 && isComplete && missingMistake(crl, clientCa)
    if (missing) mistakes.push({ path: at, message: missing })
    return { ...tls!, crl: section.crl && crl, ciphers: section.ciphers }
  }

  return { readTls, readServerTls }
}

const certificateMistake = (pem: string) => pemMistake('PEM certificate', { cert: pem, ca: pem })
const keyMistake = (pem: string) => pemMistake('PEM private key without a passphrase', { key: pem })

function pemMistake(what: string, options: SecureContextOptions): string | undefined {
  try {
    createSecureContext(options)
    return undefined
  } catch {
    return `contains no valid ${what}`
  }
}
