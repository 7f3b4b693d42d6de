import { Server, ServerResponse } from 'node:http'
import { afterEach, expect, it, vi } from 'vitest'
import { assertPrivateParts } from '../../src/runtime/node-http.ts'

afterEach(() => vi.restoreAllMocks())

it('finds the private parts of Node.js that the gateway uses', () => {
  expect(assertPrivateParts).not.toThrow()
})

it.each([
  ['_httpMessage', ServerResponse.prototype, 'assignSocket'],
  ['_header', ServerResponse.prototype, 'writeHead'],
  ['parser', Server.prototype, 'emit'],
] as const)('refuses a version of Node.js without %s', (_, prototype, method) => {
  vi.spyOn(prototype as unknown as Record<string, () => void>, method).mockImplementation(() => {})
  expect(assertPrivateParts).toThrow('use Node.js 20, 22, 24 or 26')
})
