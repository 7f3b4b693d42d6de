import { createReadStream } from 'node:fs'

/** Most bytes of a document; real ones have 40 kB. */
const MAX_BYTES = 1024 * 1024

/**
 * Reads a JSON document from an http(s) URL or a file; rejects with an Error that names the place and what is wrong there.
 * No redirect is followed: the keys of an issuer come from where the operator or the issuer said.
 */
export async function readJson(where: string, signal: AbortSignal): Promise<unknown> {
  let bytes: Buffer
  try {
    bytes = /^https?:\/\//i.test(where)
      ? await readBytes(await open(where, signal), MAX_BYTES)
      : await readBytes(createReadStream(where, { signal }), MAX_BYTES)
  } catch (error) {
    throw new Error(`${shownUrl(where)} ${describeFailure(error)}`, { cause: error })
  }
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes))
  } catch (error) {
    throw new Error(`${shownUrl(where)} is no JSON`, { cause: error })
  }
}

/** A URL, or a path, as it may be shown: the query may hold a key. */
export function shownUrl(url: string): string {
  return /^https?:/i.test(url) ? url.replace(/\?.*$/s, '?***') : url
}

class Problem extends Error {}

/** Reads a body to its end; rejects as soon as it is larger than `maxBytes`. */
export async function readBytes(body: AsyncIterable<Uint8Array> | null, maxBytes: number): Promise<Buffer> {
  const chunks: Uint8Array[] = []
  let bytes = 0
  for await (const chunk of body ?? []) {
    bytes += chunk.length
    if (bytes > maxBytes) throw new Problem(`is larger than ${maxBytes} bytes`)
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}

async function open(url: string, signal: AbortSignal): Promise<AsyncIterable<Uint8Array>> {
  const response = await fetch(url, { signal, redirect: 'manual', headers: { accept: 'application/json' } })
  if (response.status !== 200 || response.body === null) {
    await response.body?.cancel()
    const target = response.headers.get('location')
    throw new Problem(
      target === null
        ? `answered ${response.status}`
        : `answered ${response.status} with a redirect, which is not followed`,
    )
  }
  return response.body
}

/** What went wrong while something was fetched, in words that follow its name. */
export function describeFailure(error: unknown): string {
  if (error instanceof Problem) return error.message
  const { name, code, message, cause } = error as NodeJS.ErrnoException
  if (name === 'TimeoutError') return 'did not answer in time'
  const reason = (cause as NodeJS.ErrnoException | undefined)?.code ?? code ?? message
  return `cannot be read: ${reason === 'ENOENT' ? 'there is no such file' : reason}`
}
