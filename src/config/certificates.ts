import { X509Certificate } from 'node:crypto'
import type { Compiled } from './compile.ts'
import type { Path } from './yaml/issue.ts'

/** The period in which all certificates of a PEM file are valid, in epoch milliseconds. */
export interface Validity {
  /** The path of the setting that names the file, such as `listen.tls.cert`. */
  readonly path: Path
  readonly validFromMs: number
  readonly validToMs: number
}

const CERTIFICATE = /-----BEGIN ((?:X509 |TRUSTED )?CERTIFICATE)-----[^-]+-----END \1-----/g

/**
 * Reads the validity of a configuration's PEM files. Skips certificates that OpenSSL cannot read.
 */
export function certificatesOf({ listen, admin, upstreams, store }: Compiled): readonly Validity[] {
  const sections: readonly (readonly [Path, object | undefined])[] = [
    [['listen', 'tls'], listen.tls],
    [['admin', 'tls'], admin.tls],
    ...upstreams.map(({ name, tls }) => [['upstreams', name, 'tls'], tls] as const),
    [['store', 'redis', 'tls'], store === 'memory' ? undefined : store.redis.tls],
  ]
  return sections.flatMap(([path, tls]) =>
    ['cert', 'ca', 'clientCa'].flatMap((key) => {
      const { [key]: pem }: Partial<Record<string, unknown>> = { ...tls }
      const all = typeof pem === 'string' ? [...pem.matchAll(CERTIFICATE)].flatMap(datesOf) : []
      if (all.length === 0) return []
      const validFromMs = Math.max(...all.map(([from]) => from))
      const validToMs = Math.min(...all.map(([, to]) => to))
      return [{ path: [...path, key], validFromMs, validToMs }]
    }),
  )
}

function datesOf([pem]: RegExpExecArray): readonly (readonly [fromMs: number, toMs: number])[] {
  try {
    const { validFrom, validTo } = new X509Certificate(pem)
    const [from, to] = [Date.parse(validFrom), Date.parse(validTo)]
    return Number.isFinite(from + to) ? [[from, to]] : []
  } catch {
    return []
  }
}

const SOON_MS = 14 * 86_400_000

/**
 * Describes a certificate at an instant: `failed` if it is not valid, `warning` if it ends soon.
 */
export function describeValidity({ validFromMs, validToMs }: Validity, nowMs: number) {
  const [from, to] = [validFromMs, validToMs].map((ms) => new Date(ms).toISOString())
  if (nowMs >= validToMs) return { state: 'failed', message: `expired at ${to}; renew it` } as const
  if (nowMs < validFromMs) return { state: 'failed', message: `is valid only from ${from}` } as const
  if (validToMs - nowMs >= SOON_MS) return { state: 'ok', message: `is valid until ${to}` } as const
  return { state: 'warning', message: `is valid until ${to}; renew it` } as const
}
