import type { X509Certificate } from 'node:crypto'
import type { Compiled } from './config.ts'
import { certificatesIn } from './pem.ts'
import { periodOf } from './revocation-lists.ts'
import type { Path } from './yaml/issue.ts'

/** The period in which all certificates, or revocation lists, of a setting are valid, in epoch milliseconds. */
export interface Validity {
  /** The path of the setting that names the file, such as `listen.tls.cert`. */
  readonly path: Path
  readonly validFromMs: number
  readonly validToMs: number
}

/**
 * Reads the validity of a configuration's PEM files. Skips certificates that OpenSSL cannot read.
 * That of revocation lists (`crl`) ends with the first authority without a current one.
 */
export function certificatesOf({ listen, admin, upstreams, store }: Compiled): readonly Validity[] {
  const sections: readonly (readonly [Path, object | undefined])[] = [
    [['listen', 'tls'], listen.tls],
    [['admin', 'tls'], admin.tls],
    ...upstreams.map(({ name, tls }) => [['upstreams', name, 'tls'], tls] as const),
    [['store', 'redis', 'tls'], store === 'memory' ? undefined : store.redis.tls],
  ]
  const lists = [
    { path: ['listen', 'tls', 'crl'], crl: listen.tls?.crl },
    { path: ['admin', 'tls', 'crl'], crl: admin.tls?.crl },
  ].flatMap(({ path, crl = [] }) => (crl.length === 0 ? [] : [periodAt(path, crl)]))
  const certificates = sections.flatMap(([path, tls]) =>
    ['cert', 'ca', 'clientCa'].flatMap((key) => {
      const { [key]: pem }: Partial<Record<string, unknown>> = { ...tls }
      const all = typeof pem === 'string' ? certificatesIn(pem).flatMap(datesOf) : []
      if (all.length === 0) return []
      const validFromMs = Math.max(...all.map(([from]) => from))
      const validToMs = Math.min(...all.map(([, to]) => to))
      return [{ path: [...path, key], validFromMs, validToMs }]
    }),
  )
  return [...certificates, ...lists]
}

function periodAt(path: Path, crl: readonly string[]): Validity {
  const [validFromMs, validToMs] = periodOf(crl)
  return { path, validFromMs, validToMs }
}

export const isOfLists = ({ path }: Validity): boolean => path.at(-1) === 'crl'

function datesOf({
  validFrom,
  validTo,
}: X509Certificate): readonly (readonly [fromMs: number, toMs: number])[] {
  const [from, to] = [Date.parse(validFrom), Date.parse(validTo)]
  return Number.isFinite(from + to) ? [[from, to]] : []
}

const SOON_MS = 14 * 86_400_000
/** Authorities publish revocation lists every few hours or days. */
const LIST_SOON_MS = 2 * 3_600_000

/**
 * Describes a certificate, or revocation lists, at an instant: `failed` if not valid, `warning` if
 * the validity ends soon.
 */
export function describeValidity(validity: Validity, nowMs: number) {
  const { validFromMs, validToMs } = validity
  const isLists = isOfLists(validity)
  const refused = isLists ? ', so the client certificates of that authority are refused' : ''
  const [from, to] = [validFromMs, validToMs].map((ms) => new Date(ms).toISOString())
  if (nowMs >= validToMs) return { state: 'failed', message: `expired at ${to}${refused}; renew it` } as const
  if (nowMs < validFromMs)
    return { state: 'failed', message: `is valid only from ${from}${refused}` } as const
  const isSoon = validToMs - nowMs < (isLists ? LIST_SOON_MS : SOON_MS)
  if (!isSoon) return { state: 'ok', message: `is valid until ${to}` } as const
  return { state: 'warning', message: `is valid until ${to}; renew it` } as const
}
