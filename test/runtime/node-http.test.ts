import { ServerResponse } from 'node:http'
import { afterEach, expect, it, vi } from 'vitest'
import { assertPrivateParts } from '../../src/runtime/node-http.ts'

afterEach(() => vi.restoreAllMocks())

it('finds the private parts of Node.js that the gateway uses', () => {
  expect(assertPrivateParts).not.toThrow()
})

it('refuses a version of Node.js without them', () => {
  vi.spyOn(ServerResponse.prototype, 'assignSocket').mockImplementation(() => {})
  expect(assertPrivateParts).toThrow('use Node.js 20, 22, 24 or 26')
})
