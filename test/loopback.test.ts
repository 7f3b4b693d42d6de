import { describe, expect, it } from 'vitest'
import { isLoopback } from '../src/loopback.ts'

describe('isLoopback', () => {
  it.for([
    '127.0.0.1',
    '127.255.0.9',
    '::1',
    '0:0:0:0:0:0:0:1',
    '::ffff:127.0.0.1',
    '::FFFF:127.0.0.1',
    'LocalHost',
  ])('returns true for %s', (host) => expect(isLoopback(host)).toBe(true))

  it.for([
    '0.0.0.0',
    '::',
    '128.0.0.1',
    '::2',
    '1::1',
    '::ffff:10.0.0.1',
    'localhost.example.com',
    '127.0.0.1.nip.io',
    '127.1',
    '',
  ])('returns false for %s', (host) => expect(isLoopback(host)).toBe(false))
})
