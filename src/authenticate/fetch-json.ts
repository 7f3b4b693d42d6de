import { createReadStream } from 'node:fs'

/** Most bytes of a document; real ones have 40 kB. */
const MAX_BYTES = 1024 * 1024

/**
 * Reads a JSON document from an http(s) URL or a file; rejects with an Error that names the place and what is wrong there.
 * No redirect is followed: the keys of an issuer come from where the operator or the issuer said.
 */
export async function readJson(where: string, signal: AbortSignal): Promise<unknown> {
  const body = /^https?:\/\//i.test(where) ? open(where, signal) : createReadStream(where, { signal })
  const chunks: Uint8Array[] = []
  let bytes = 0
  try {
    for await (const chunk of (await body) as AsyncIterable<Uint8Array>) {
      bytes += chunk.length
      if (bytes > MAX_BYTES) throw new Problem(`is larger than ${MAX_BYTES} bytes`)
      chunks.push(chunk)
    }
  } catch (error) {
    throw new Error(`${where} ${describe(error)}`, { cause: error })
  }
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(Buffer.concat(chunks)))
  } catch (error) {
    throw new Error(`${where} is no JSON`, { cause: error })
  }
}

class Problem extends Error {}

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

function describe(error: unknown): string {
  if (error instanceof Problem) return error.message
  const { name, code, message, cause } = error as NodeJS.ErrnoException
  if (name === 'TimeoutError') return 'did not answer in time'
  const reason = (cause as NodeJS.ErrnoException | undefined)?.code ?? code ?? message
  return `cannot be read: ${reason === 'ENOENT' ? 'there is no such file' : reason}`
}
