import { Server, ServerResponse } from 'node:http'
import { Socket } from 'node:net'
import { afterEach, expect, it, vi } from 'vitest'
import { assertPrivateParts } from '../../src/runtime/node-http.ts'

afterEach(() => vi.restoreAllMocks())

it('finds the private parts of Node.js that the gateway uses', () => {
  expect(assertPrivateParts).not.toThrow()
})

it.each([
  ['_httpMessage', ServerResponse.prototype, 'assignSocket', () => {}],
  ['_header', ServerResponse.prototype, 'writeHead', () => {}],
  ['parser', Server.prototype, 'emit', () => {}],
  [
    'parser.incoming',
    Server.prototype,
    'emit',
    (_: string, socket: object) => Object.assign(socket, { parser: { onIncoming() {} } }),
  ],
] as const)('refuses a version of Node.js without %s', (_, prototype, method, change) => {
  vi.spyOn(prototype as unknown as Record<string, () => void>, method).mockImplementation(
    change as () => void,
  )
  expect(assertPrivateParts).toThrow('use Node.js 20, 22, 24 or 26')
})

it('refuses a version of Node.js without _parent', () => {
  Object.defineProperty(Socket.prototype, '_parent', { set() {}, configurable: true })
  try {
    expect(assertPrivateParts).toThrow('use Node.js 20, 22, 24 or 26')
  } finally {
    delete (Socket.prototype as { _parent?: unknown })._parent
  }
})
