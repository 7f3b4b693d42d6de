import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto'
import { resolve } from 'node:path'
import { createSecureContext } from 'node:tls'
import { readPem } from './files.ts'
import type { ListenTls, Settings } from './schema.ts'
import type { Mistake } from './source.ts'

/** The TLS of the callers' listener, with its files read; what is wrong with them is added to `mistakes`. */
export async function compileTls(
  tls: Settings['listen']['tls'],
  directory: string,
  mistakes: Mistake[],
): Promise<ListenTls | undefined> {
  if (tls === undefined) return undefined
  async function read<T>(name: 'cert' | 'key' | 'clientCa', parse: (pem: string) => T | string) {
    const path = tls![name]
    if (path === undefined) return undefined
    const pem = await readPem(path, directory)
    const parsed = 'text' in pem ? parse(pem.text) : ''
    if ('text' in pem && typeof parsed !== 'string') return { text: pem.text, parsed }
    const message = 'text' in pem ? `names ${resolve(directory, path)}, which ${String(parsed)}` : pem.problem
    mistakes.push({ path: ['listen', 'tls', name], message })
    return undefined
  }

  const cert = await read('cert', readCertificates)
  const key = await read('key', readKey)
  const clientCa = await read('clientCa', readCertificates)
  if (cert && key && !cert.parsed.checkPrivateKey(key.parsed)) {
    const message = `is not the key of the certificate in ${tls.cert}; write the one that it was made with`
    mistakes.push({ path: ['listen', 'tls', 'key'], message })
  }
  return {
    cert: cert?.text ?? '',
    key: key?.text ?? '',
    clientCa: clientCa?.text,
    requestClientCert: tls.requestClientCert ?? false,
  }
}

/** Where the certificates and the key of the callers' listener are read from. */
export function filesOf(tls: Settings['listen']['tls'], directory: string): readonly string[] {
  if (tls === undefined) return []
  const paths = [tls.cert, tls.key, tls.clientCa].filter((path) => path !== undefined)
  return paths.map((path) => resolve(directory, path))
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
