import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { readBytes, readJson } from '../../../src/authenticate/jose/fetch-json.ts'
import { createFolder } from '../../helpers/folder.ts'

it('a file that is not read within the timeout is reported like a server that does not answer', async () => {
  const file = join(createFolder(), 'jwks.json')
  writeFileSync(file, '{}')
  const timeout = new DOMException('The operation was aborted due to timeout', 'TimeoutError')
  await expect(readJson(file, AbortSignal.abort(timeout))).rejects.toThrow(`${file} did not answer in time`)
})

it('a body may be as long as its bound, and not longer', async () => {
  const body = () => new Response('x'.repeat(100)).body
  expect(await readBytes(body(), 100)).toHaveLength(100)
  await expect(readBytes(body(), 99)).rejects.toThrow('is larger than 99 bytes')
})
