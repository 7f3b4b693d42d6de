import { readFileSync } from 'node:fs'
import type { ConnectionOptions } from 'node:tls'
import { reason } from '../config/text.ts'
import { type Args, textOf, UsageError } from './args.ts'
import type { Io } from './io.ts'

const FIRST_CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/

/**
 * Returns the TLS options for an https admin listener: `--ca`, `--cert` and `--key`, or ADMIN_CA,
 * ADMIN_CERT and ADMIN_KEY. Without an authority, trusts exactly the certificate in the file `own`,
 * which the configuration names, at any address of this machine; without that, the system's
 * authorities. Throws a UsageError for files that cannot be read.
 */
export function adminTls(args: Args, { env }: Io, own?: string): ConnectionOptions {
  function read(flag: 'ca' | 'cert' | 'key'): string | undefined {
    const variable = `ADMIN_${flag.toUpperCase()}`
    const file = textOf(args, flag) ?? (env[variable] || undefined)
    if (file === undefined) return undefined
    try {
      return readFileSync(file, 'utf8')
    } catch (error) {
      const name = textOf(args, flag) === undefined ? variable : `--${flag}`
      throw new UsageError(`${name} names ${file}, which ${reason(error)}.`)
    }
  }
  const [ca, cert, key] = [read('ca'), read('cert'), read('key')]
  if ((cert === undefined) !== (key === undefined))
    throw new UsageError('A client certificate needs both --cert and --key.')
  const identity = { ...(cert !== undefined && { cert }), ...(key !== undefined && { key }) }
  if (ca !== undefined) return { ...identity, ca }
  return { ...identity, ...(own !== undefined && onlyCertificateOf(own)) }
}

/** Returns options that trust only the first certificate of a file, also by another name than its own. */
function onlyCertificateOf(file: string): ConnectionOptions {
  try {
    const [certificate] = FIRST_CERTIFICATE.exec(readFileSync(file, 'utf8')) ?? []
    if (certificate === undefined) return {}
    return { ca: certificate, allowPartialTrustChain: true, checkServerIdentity: () => undefined }
  } catch {
    // The system's authorities may trust it.
    return {}
  }
}
