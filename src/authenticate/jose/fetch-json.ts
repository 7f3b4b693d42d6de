import { createReadStream } from 'node:fs'
import { parseObject } from '../../runtime/json.ts'
import { toError } from '../../runtime/to-error.ts'

/** Maximum bytes of a document; real ones have 40 kB. */
const MAX_BYTES = 1024 * 1024

/** JSON, and the media type of JWK Sets (RFC 7517 section 8.5.2): some servers send no other. */
const ACCEPTED = 'application/json, application/jwk-set+json'

/** An unusable response; the message is a phrase that follows its URL. */
export class FetchError extends Error {}

/**
 * Reads a JSON object from an http(s) URL or a file; rejects with the URL and the fault. Redirects
 * are refused: only the configured source is trusted.
 */
export async function readJson(url: string, signal: AbortSignal, maxBytes = MAX_BYTES) {
  try {
    const body = /^https?:/i.test(url) ? await open(url, signal) : createReadStream(url, { signal })
    const document = parseObject(await readBytes(body, maxBytes))
    if (document === undefined) throw new FetchError('is not a JSON object')
    return document
  } catch (error) {
    throw fetchFailure(url, error)
  }
}

async function open(url: string, signal: AbortSignal): Promise<AsyncIterable<Uint8Array>> {
  const response = await fetch(url, { signal, redirect: 'manual', headers: { accept: ACCEPTED } })
  if (response.status === 200 && response.body !== null) return response.body
  await response.body?.cancel()
  throw new FetchError(describeStatus(response))
}

export const describeStatus = ({ status, headers }: Response): string =>
  `answered ${status}${headers.has('location') ? ' with a redirect, which is not followed' : ''}`

/** A byte-order mark, which a JSON text must not have, but a parser may ignore (RFC 8259 section 8.1). */
const BOM = Buffer.from('\ufeff')

/** Reads a body, without a byte-order mark. */
export async function readBytes(body: AsyncIterable<Uint8Array> | null, maxBytes: number) {
  const chunks: Uint8Array[] = []
  let bytes = 0
  for await (const chunk of body ?? []) {
    bytes += chunk.length
    if (bytes > maxBytes) throw new FetchError(`is larger than ${maxBytes} bytes`)
    chunks.push(chunk)
  }
  const all = Buffer.concat(chunks)
  return all.subarray(0, BOM.length).equals(BOM) ? all.subarray(BOM.length) : all
}

/** Returns a URL or a path for the log: without its query, which may hold a key. */
export const redactUrl = (url: string): string =>
  /^https?:/i.test(url) ? url.replace(/\?.*$/s, '?***') : url

export const fetchFailure = (url: string, cause: unknown): Error =>
  new Error(`${redactUrl(url)} ${describeFailure(cause)}`, { cause })

function describeFailure(error: unknown): string {
  if (error instanceof FetchError) return error.message
  const { name, code, message, cause } = toError(error)
  // The error of a file has the timeout as its cause.
  const inner = cause === undefined ? undefined : toError(cause)
  if (name === 'TimeoutError' || inner?.name === 'TimeoutError') return 'did not answer in time'
  const reason = inner?.code ?? code ?? message
  if (reason === 'ERR_SSL_WRONG_VERSION_NUMBER') return 'does not use TLS; write it with http://'
  return `cannot be read: ${reason === 'ENOENT' ? 'there is no such file' : reason}`
}
