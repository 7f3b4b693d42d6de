import { createPrivateKey, X509Certificate } from 'node:crypto'
import { createSecureContext, type SecureContextOptions } from 'node:tls'
import type { SettingsFiles } from './files.ts'
import { foreignMistake, listMistake, listsIn, missingMistake } from './revocation-lists.ts'
import type { Path } from './yaml/issue.ts'

type Names = Readonly<Partial<Record<'cert' | 'key' | 'ca' | 'clientCa', string | undefined>>>
interface ServerNames extends Names {
  readonly cert: string
  readonly key: string
  readonly crl?: readonly string[] | undefined
  readonly ciphers?: string | undefined
}

/** Stands for the text of a file with a mistake, which refuses the whole configuration. */
const UNREAD = ''

/**
 * Replaces the names of the PEM files for connections to a server by their texts. The files must be in
 * `folder`, if it is given.
 */
export async function readTls<T extends Names>(
  files: SettingsFiles,
  section: T | undefined,
  path: Path,
  folder?: string,
) {
  if (section === undefined) return undefined
  const pair = await readPair(files, section, path, folder)
  const ca = await files.read([...path, 'ca'], section.ca, certificateMistake, { folder })
  return { ...section, ...pair, ca }
}

/** Replaces the names of the PEM files of a listener by their texts, also those of its revocation lists. */
export async function readServerTls<T extends ServerNames>(
  files: SettingsFiles,
  section: T | undefined,
  ...path: Path
) {
  if (section === undefined) return undefined
  const { cert = UNREAD, key = UNREAD } = await readPair(files, section, path)
  const clientCa = await files.read([...path, 'clientCa'], section.clientCa, certificateMistake)
  const crl = section.crl && (await readLists(files, section.crl, clientCa, [...path, 'crl']))
  return { ...section, cert, key, clientCa, crl, ciphers: section.ciphers }
}

/**
 * Reads the revocation lists in files. Each must be of one of the authorities in `clientCa`, and each
 * authority must have one.
 */
async function readLists(
  files: SettingsFiles,
  names: readonly string[],
  clientCa: string | undefined,
  path: Path,
): Promise<readonly string[]> {
  const check = (pem: string): string | undefined =>
    listMistake(pem) ?? (clientCa === undefined ? undefined : foreignMistake(pem, clientCa))
  const texts = await Promise.all(
    names.map((name, i) => files.read(names.length > 1 ? [...path, i] : path, name, check)),
  )
  const read = texts.filter((text) => text !== undefined)
  const lists = read.flatMap((text) => listsIn(text).map(({ pem }) => pem))
  if (clientCa === undefined || names.length === 0 || read.length < names.length) return lists
  const missing = missingMistake(lists, clientCa)
  if (missing !== undefined) files.report(path, missing)
  return lists
}

/** Reads a certificate and its key, and checks that the key belongs to the certificate. */
async function readPair(files: SettingsFiles, names: Names, path: Path, folder?: string) {
  const cert = await files.read([...path, 'cert'], names.cert, certificateMistake, { folder })
  const key = await files.read([...path, 'key'], names.key, keyMistake, { folder })
  if (cert !== undefined && key !== undefined && !isPair(cert, key)) {
    const message = `is not the key of the certificate in ${names.cert}; write the key that is`
    files.report([...path, 'key'], message)
  }
  return { cert, key }
}

const isPair = (cert: string, key: string): boolean =>
  new X509Certificate(cert).checkPrivateKey(createPrivateKey(key))

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
