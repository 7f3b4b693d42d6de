import { createPrivateKey, X509Certificate } from 'node:crypto'
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
  async function read<T>(name: 'cert' | 'key' | 'clientCa', parse: (pem: string) => T) {
    const path = tls![name]
    if (path === undefined) return undefined
    const pem = await readPem(path, directory)
    if ('problem' in pem) {
      mistakes.push({ path: at(name), message: pem.problem })
      return undefined
    }
    try {
      return { text: pem.text, parsed: parse(pem.text) }
    } catch (error) {
      mistakes.push({ path: at(name), message: `names ${path}, which ${worded(name, error)}` })
      return undefined
    }
  }

  const cert = await read('cert', readCertificates)
  const key = await read('key', (pem) => createPrivateKey(pem))
  const clientCa = await read('clientCa', readCertificates)
  if (cert && key && !cert.parsed.checkPrivateKey(key.parsed)) {
    const message = `is not the key of the certificate in ${tls.cert}; write the one that it was made with`
    mistakes.push({ path: at('key'), message })
  }
  return {
    cert: cert?.text ?? '',
    key: key?.text ?? '',
    clientCa: clientCa?.text,
    requestClientCert: tls.requestClientCert ?? false,
  }
}

const at = (name: string) => ['listen', 'tls', name]

/** The first certificate of a chain; throws where one of them is none. */
function readCertificates(pem: string): X509Certificate {
  createSecureContext({ cert: pem, ca: pem })
  return new X509Certificate(pem)
}

function worded(name: 'cert' | 'key' | 'clientCa', error: unknown): string {
  if (name !== 'key') return 'holds no certificate, or a broken one'
  return (error as NodeJS.ErrnoException).code === 'ERR_MISSING_PASSPHRASE'
    ? 'is locked with a passphrase; write a key without one'
    : 'holds no private key, or a broken one'
}
