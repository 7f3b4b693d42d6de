import { verify, type X509Certificate } from 'node:crypto'
import { createSecureContext } from 'node:tls'
import { type DerValue, instantOf, valuesIn } from './der.ts'
import { certificatesIn } from './pem.ts'

/** A certificate revocation list (RFC 5280 section 5.1). */
interface RevocationList {
  readonly pem: string
  /** The name of its authority, in DER. */
  readonly issuer: Buffer
  /** Epoch milliseconds. */
  readonly thisUpdateMs: number
  /** The time after which OpenSSL refuses every certificate of the authority; undefined if the list has none. */
  readonly nextUpdateMs: number | undefined
  readonly signed: Buffer
  /** The object identifier of the signature's algorithm, in hex. */
  readonly algorithm: string
  readonly signature: Buffer
}

const LIST = /-----BEGIN X509 CRL-----([^-]+)-----END X509 CRL-----/g
const SEQUENCE = 0x30
const INTEGER = 0x02

/** Returns the lists of a PEM file, whose text OpenSSL has accepted before. */
export const listsIn = (pem: string): readonly RevocationList[] =>
  [...pem.matchAll(LIST)].map(([text, base64 = '']) => parseList(text, Buffer.from(base64, 'base64')))

function parseList(pem: string, der: Buffer): RevocationList {
  const [whole] = valuesIn(der)
  const [signed, algorithm, signature] = valuesIn(whole!.content)
  const fields = valuesIn(signed!.content)
  // The version is optional.
  const [, issuer, thisUpdate, next] = fields[0]!.tag === INTEGER ? fields.slice(1) : fields
  const hasNext = next !== undefined && next.tag < SEQUENCE
  return {
    pem,
    issuer: issuer!.bytes,
    thisUpdateMs: instantOf(thisUpdate!),
    nextUpdateMs: hasNext ? instantOf(next) : undefined,
    signed: signed!.bytes,
    algorithm: valuesIn(algorithm!.content)[0]!.content.toString('hex'),
    // Without the number of unused bits.
    signature: signature!.content.subarray(1),
  }
}

const UNREADABLE = 'contains no valid PEM revocation list (X509 CRL)'

/**
 * Returns the mistake in the text of a file with revocation lists: each must be readable, and have
 * the time of the next one (RFC 5280 section 5.1.2.5).
 */
export function listMistake(pem: string): string | undefined {
  const lists = [...pem.matchAll(LIST)].map(([text]) => text)
  const hasBroken = pem.split('-----BEGIN X509 CRL-----').length - 1 !== lists.length
  try {
    createSecureContext({ crl: lists })
    if (lists.length === 0 || hasBroken) return UNREADABLE
  } catch {
    return UNREADABLE
  }
  const isEndless = listsIn(pem).some(({ nextUpdateMs }) => nextUpdateMs === undefined)
  return isEndless ? 'has a revocation list without nextUpdate; ask its authority for one' : undefined
}

interface Authority {
  /** The subject in one line, for operators. */
  readonly name: string
  /** The subject in DER. */
  readonly subject: Buffer
  readonly certificate: X509Certificate
}

/** Returns the certificates of a PEM file with their subjects (RFC 5280 section 4.1). */
function authoritiesIn(pem: string): readonly Authority[] {
  return certificatesIn(pem).map((certificate) => {
    const fields = valuesIn(valuesIn(valuesIn(certificate.raw)[0]!.content)[0]!.content)
    // Version 1 has no version field.
    const [, , , , subject] = fields[0]!.tag === INTEGER ? fields : fields.slice(1)
    const name = certificate.subject.replaceAll('\n', ',')
    return { name, subject: (subject as DerValue).bytes, certificate }
  })
}

/** Hashes of signature algorithms by their identifiers in hex; null if the algorithm includes its own. */
const HASHES: ReadonlyMap<string, string | null> = new Map([
  ['2a864886f70d01010b', 'sha256'], // RSA (RFC 4055 section 5)
  ['2a864886f70d01010c', 'sha384'],
  ['2a864886f70d01010d', 'sha512'],
  ['2a8648ce3d040302', 'sha256'], // ECDSA (RFC 5758 section 3.2)
  ['2a8648ce3d040303', 'sha384'],
  ['2a8648ce3d040304', 'sha512'],
  ['2b6570', null], // Ed25519 (RFC 8410 section 3)
])

/**
 * Returns true if the authority's key verifies the list. Other algorithms are left to OpenSSL, which
 * refuses the certificates of an authority whose list it cannot verify.
 */
function isSignedBy({ signed, algorithm, signature }: RevocationList, { certificate }: Authority): boolean {
  const hash = HASHES.get(algorithm)
  return hash === undefined || verify(hash, signed, certificate.publicKey, signature)
}

/** Returns the lists of an authority. */
const listsOf = (authority: Authority, lists: readonly RevocationList[]) =>
  lists.filter((list) => list.issuer.equals(authority.subject) && isSignedBy(list, authority))

/** Returns the mistake of the lists of a file that are not of an authority in `clientCa`. */
export function foreignMistake(pem: string, clientCa: string): string | undefined {
  const lists = listsIn(pem)
  const own = new Set(authoritiesIn(clientCa).flatMap((authority) => listsOf(authority, lists)))
  if (lists.every((list) => own.has(list))) return undefined
  return 'has a revocation list that no authority of clientCa has signed; remove it, or add that authority'
}

/**
 * Returns the mistake of an authority without a list: OpenSSL, as Node.js sets it, refuses every
 * certificate whose authority has none.
 */
export function missingMistake(crl: readonly string[], clientCa: string): string | undefined {
  const lists = crl.flatMap(listsIn)
  const without = authoritiesIn(clientCa).find((authority) => listsOf(authority, lists).length === 0)
  if (without === undefined) return undefined
  return `has no revocation list of "${without.name}", an authority of clientCa, whose certificates would all be refused; add its list`
}

/** Returns the period in which every authority has a current list, in epoch milliseconds. */
export function periodOf(crl: readonly string[]): readonly [fromMs: number, toMs: number] {
  const newest = new Map<string, RevocationList>()
  for (const list of crl.flatMap(listsIn)) {
    const issuer = list.issuer.toString('hex')
    if (nextUpdateOf(list) >= nextUpdateOf(newest.get(issuer))) newest.set(issuer, list)
  }
  const current = [...newest.values()]
  return [
    Math.max(...current.map(({ thisUpdateMs }) => thisUpdateMs)),
    Math.min(...current.map(nextUpdateOf)),
  ]
}

const nextUpdateOf = (list: RevocationList | undefined): number => list?.nextUpdateMs ?? 0
