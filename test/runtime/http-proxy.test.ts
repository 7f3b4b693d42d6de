import util from 'node:util'
import { expect, it } from 'vitest'
import '../../src/runtime/http-proxy.ts'

it('http-proxy calls no deprecated function of Node.js', () => {
  const extend = (util as unknown as Record<string, unknown>)['_extend']
  expect(String(extend)).not.toContain('emitWarning')
})
