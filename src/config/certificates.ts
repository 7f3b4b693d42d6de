import { X509Certificate } from 'node:crypto'
import type { Config } from './schema.ts'
import type { Path } from './yaml/issue.ts'

/** How long all certificates of a PEM file are valid, in epoch milliseconds. */
export interface Validity {
  /** Where the configuration names the file, such as `listen.tls.cert`. */
  readonly path: Path
  readonly validFromMs: number
  readonly validToMs: number
}

const CERTIFICATE = /-----BEGIN ((?:X509 |TRUSTED )?CERTIFICATE)-----[^-]+-----END \1-----/g

/** Reads the certificates of a configuration, each file once; leaves out those that OpenSSL cannot read. */
export function certificatesOf({
  listen,
  upstreams,
  store,
}: Pick<Config, 'listen' | 'upstreams' | 'store'>): readonly Validity[] {
  const sections: readonly (readonly [Path, object | undefined])[] = [
    [['listen', 'tls'], listen.tls],
    ...upstreams.map(({ name, tls }) => [['upstreams', name, 'tls'], tls] as const),
    [['store', 'redis', 'tls'], store === 'memory' ? undefined : store.redis.tls],
  ]
  return sections.flatMap(([path, tls]) => {
    const files: Readonly<Partial<Record<string, unknown>>> = { ...tls }
    return ['cert', 'ca', 'clientCa'].flatMap((key) => {
      const pem = files[key]
      const all = typeof pem === 'string' ? [...pem.matchAll(CERTIFICATE)].flatMap(validityOf) : []
      if (all.length === 0) return []
      const validFromMs = Math.max(...all.map(([from]) => from))
      const validToMs = Math.min(...all.map(([, to]) => to))
      return [{ path: [...path, key], validFromMs, validToMs }]
    })
  })
}

/** Returns none where OpenSSL reads no certificate, or no date of it. */
function validityOf([pem]: RegExpExecArray): readonly (readonly [fromMs: number, toMs: number])[] {
  try {
    const { validFrom, validTo } = new X509Certificate(pem)
    const [from, to] = [Date.parse(validFrom), Date.parse(validTo)]
    return Number.isFinite(from + to) ? [[from, to]] : []
  } catch {
    return []
  }
}

const DAY_MS = 86_400_000
/** A certificate that ends sooner is worth a warning. */
const SOON_MS = 14 * DAY_MS

export const endsSoon = ({ validToMs }: Validity, nowMs: number): boolean => validToMs - nowMs < SOON_MS

/** Says how long a certificate is valid from `nowMs` on: in hours if those are less than two days. */
export function remaining({ validToMs }: Validity, nowMs: number): string {
  const leftMs = validToMs - nowMs
  const [left, unit] = leftMs < 2 * DAY_MS ? [leftMs / 3_600_000, 'hour'] : [leftMs / DAY_MS, 'day']
  const whole = Math.floor(left)
  return `${whole} ${unit}${whole === 1 ? '' : 's'}, until ${new Date(validToMs).toISOString()}`
}

/** Says why a certificate is not valid at `nowMs`; nothing where it is. */
export function invalidity({ validFromMs, validToMs }: Validity, nowMs: number): string | undefined {
  if (nowMs >= validToMs) return `expired at ${new Date(validToMs).toISOString()}; write a new one`
  if (nowMs < validFromMs) return `is not valid before ${new Date(validFromMs).toISOString()}`
  return undefined
}
