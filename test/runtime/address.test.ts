import { describe, expect, it } from 'vitest'
import { isLoopback, normalizeAddress } from '../../src/runtime/address.ts'
import { words } from '../helpers/words.ts'

it('an address that embeds an IPv4 address becomes that', () => {
  expect(normalizeAddress('::ffff:10.0.0.1')).toBe('10.0.0.1')
  expect(normalizeAddress('::ffff:a00:1')).toBe('10.0.0.1')
  expect(normalizeAddress('64:ff9b::a00:1')).toBe('10.0.0.1')
  for (const other of ['64:ff9b:1::a00:1', '64:ff9b::1:a00:1', '::a00:1', '64:ff9b::a00:1::', 'x'])
    expect(normalizeAddress(other)).toBe(other)
  expect(normalizeAddress('10.0.0.1')).toBe('10.0.0.1')
})

describe('isLoopback', () => {
  it.for([
    ...words(`
      127.0.0.1 127.255.0.9 ::1 0:0:0:0:0:0:0:1 ::ffff:127.0.0.1 ::FFFF:127.0.0.1 ::ffff:7f00:1 ::1%lo
      LocalHost
    `),
  ])('is true for %s', (host) => expect(isLoopback(host)).toBe(true))

  it.for([
    ...words(`
      0.0.0.0 :: 128.0.0.1 ::2 ::127.0.0.1 64:ff9b::127.0.0.1 fe80::1%eth0.1 1::1 ::ffff:10.0.0.1
      localhost.example.com 127.0.0.1.nip.io 127.1
    `),
    '',
  ])('is false for %s', (host) => expect(isLoopback(host)).toBe(false))
})
