import { type Refusal, unframed } from '../errors.ts'

/** Collects every `Host`, `Authorization` and `DPoP` value, since Node keeps only the first of each or joins them. */
export function readHead(rawHeaders: readonly string[]) {
  const hosts: string[] = []
  const authorization: string[] = []
  const proofs: string[] = []
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = rawHeaders[i]!
    if (name.length !== 4 && name.length !== 13) continue
    const lower = name.toLowerCase()
    if (lower === 'host') hosts.push(rawHeaders[i + 1]!)
    else if (lower === 'authorization') authorization.push(rawHeaders[i + 1]!)
    else if (lower === 'dpop') proofs.push(rawHeaders[i + 1]!)
  }
  return { hosts, authorization, proofs }
}

export type Head = Readonly<ReturnType<typeof readHead>>

/** How many bytes of body a request announces: 0 for none, undefined for a chunked body of unknown length. */
export type BodyLength = number | undefined

const BODILESS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'DELETE', 'OPTIONS'])

/** Reads the announced body, or refuses a framing that two servers could read differently (RFC 9112 section 6). */
export function bodyLength(
  method: string,
  httpVersion: string,
  headers: Readonly<Record<string, string | string[] | undefined>>,
): BodyLength | Refusal {
  if (httpVersion !== '1.1' && httpVersion !== '1.0')
    return unframed('This is neither HTTP/1.1 nor HTTP/1.0.')
  const coding = headers['transfer-encoding']
  const length = headers['content-length']
  if (coding === undefined && length === undefined) return 0
  if (length !== undefined && coding !== undefined)
    return unframed('Send Content-Length or Transfer-Encoding, not both.')
  if (coding !== undefined && (httpVersion !== '1.1' || String(coding).toLowerCase() !== 'chunked'))
    return unframed('The only Transfer-Encoding taken is "chunked", in HTTP/1.1.')
  if (length !== undefined && !/^(?:0|[1-9]\d{0,14})$/.test(String(length)))
    return unframed('The Content-Length is no plain number.')
  const bytes = length === undefined ? undefined : Number(length)
  if (bytes !== 0 && BODILESS.has(method)) return unframed(`A ${method} request carries no body here.`)
  return bytes
}
