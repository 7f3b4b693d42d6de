import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto'
import { resolve } from 'node:path'
import { createSecureContext } from 'node:tls'
import { readPem } from '../files.ts'
import type { Path } from '../yaml/locate.ts'
import type { ListenTls, Settings, UpstreamTls } from '../schema.ts'
import type { Mistake } from '../yaml/source.ts'
import type { UpstreamSettings } from '../sections/upstream.ts'

/** The TLS of the callers' listener, with its files read; what is wrong with them is added to `mistakes`. */
export async function compileTls(
  tls: Settings['listen']['tls'],
  directory: string,
  mistakes: Mistake[],
): Promise<ListenTls | undefined> {
  if (tls === undefined) return undefined
  const { requestClientCert = false, ...files } = tls
  const { cert = '', key = '', clientCa } = await readFiles(files, ['listen', 'tls'], directory, mistakes)
  return { cert, key, clientCa, requestClientCert }
}

/** The TLS to an upstream, with its files read; what is wrong with them is added to `mistakes`. */
export async function compileUpstreamTls(
  { servername, ...files }: NonNullable<UpstreamSettings['tls']>,
  path: Path,
  directory: string,
  mistakes: Mistake[],
): Promise<UpstreamTls> {
  const { ca, cert, key } = await readFiles(files, path, directory, mistakes)
  return { ca, servername, cert, key }
}

type Files = Readonly<Partial<Record<'cert' | 'key' | 'ca' | 'clientCa', string | undefined>>>

/** The PEM texts of the files that a section names: each sound, and the key that of the certificate. */
async function readFiles(files: Files, path: Path, directory: string, mistakes: Mistake[]): Promise<Files> {
  async function read<T>(name: keyof Files, parse: (pem: string) => T | string) {
    const file = files[name]
    if (file === undefined) return undefined
    const pem = await readPem(file, directory)
    const parsed = 'text' in pem ? parse(pem.text) : ''
    if ('text' in pem && typeof parsed !== 'string') return { text: pem.text, parsed }
    const message = 'text' in pem ? `names ${resolve(directory, file)}, which ${String(parsed)}` : pem.problem
    mistakes.push({ path: [...path, name], message })
    return undefined
  }

  const cert = await read('cert', readCertificates)
  const key = await read('key', readKey)
  if (cert && key && !cert.parsed.checkPrivateKey(key.parsed)) {
    const message = `is not the key of the certificate in ${files.cert}; write the one that it was made with`
    mistakes.push({ path: [...path, 'key'], message })
  }
  const ca = await read('ca', readCertificates)
  const clientCa = await read('clientCa', readCertificates)
  return { cert: cert?.text, key: key?.text, ca: ca?.text, clientCa: clientCa?.text }
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
