import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { parseProxyHeader } from '../../src/downstream/proxy-protocol.ts'

const START = '\r\n\r\n\0\r\nQUIT\n'
const IPV4 = [192, 0, 2, 7, 10, 0, 0, 1, 0xdd, 0xd5, 1, 0xbb]
const IPV6 = [
  0x20,
  1,
  0xd,
  0xb8,
  ...Array<number>(11).fill(0),
  7,
  0x20,
  1,
  ...Array<number>(14).fill(0),
  1,
  2,
  3,
  4,
]

/** Builds a header of version 2, whose announced length is that of `rest` unless given. */
function v2(command: number, family: number, rest: readonly number[] = [], length = rest.length): Buffer {
  return Buffer.concat([
    Buffer.from(START, 'latin1'),
    Buffer.from([command, family, length >> 8, length & 255, ...rest]),
  ])
}
const text = (line: string): Buffer => Buffer.from(line, 'latin1')

const VALID: readonly (readonly [string, Buffer, string | undefined])[] = [
  ['of IPv4', text('PROXY TCP4 192.0.2.7 10.0.0.1 56789 443\r\n'), '192.0.2.7'],
  ['of IPv6', text('PROXY TCP6 2001:DB8:0:0::7 2001::1 0 65535\r\n'), '2001:db8::7'],
  ['of an unknown caller', text('PROXY UNKNOWN\r\n'), undefined],
  ['of an unknown caller with more', text('PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n'), undefined],
  ['of IPv4 in version 2', v2(0x21, 0x11, IPV4), '192.0.2.7'],
  ['of IPv6 in version 2', v2(0x21, 0x21, IPV6), '2001:db8::7'],
  ['with extensions', v2(0x21, 0x11, [...IPV4, 4, 0, 2, 0, 0]), '192.0.2.7'],
  ['of the proxy itself', v2(0x20, 0x11, IPV4), undefined],
  ['of the proxy itself without addresses', v2(0x20, 0), undefined],
  ['of a Unix socket', v2(0x21, 0x31, Array<number>(216).fill(0)), undefined],
  ['of no family', v2(0x21, 0), undefined],
  ['of UDP', v2(0x21, 0x12, IPV4), undefined],
]

const INVALID: readonly (readonly [string, Buffer])[] = [
  ['that is a request', text('GET / HTTP/1.1\r\n')],
  ['of TLS', Buffer.from([0x16, 3, 1, 0, 0])],
  ['in lower case', text('proxy TCP4 192.0.2.7 10.0.0.1 1 2\r\n')],
  ['with an address of the other family', text('PROXY TCP4 2001:db8::7 2001::1 1 2\r\n')],
  ['with a name', text('PROXY TCP4 localhost 10.0.0.1 1 2\r\n')],
  ['with leading zeros', text('PROXY TCP4 192.0.02.7 10.0.0.1 1 2\r\n')],
  ['with a zone', text('PROXY TCP6 fe80::1%eth0 2001::1 1 2\r\n')],
  ['without a port', text('PROXY TCP4 192.0.2.7 10.0.0.1 1\r\n')],
  ['with a port that is too high', text('PROXY TCP4 192.0.2.7 10.0.0.1 1 65536\r\n')],
  ['with two blanks', text('PROXY TCP4  192.0.2.7 10.0.0.1 1 2\r\n')],
  ['with more than ports', text('PROXY TCP4 192.0.2.7 10.0.0.1 1 2 3\r\n')],
  ['with a line feed', text('PROXY UNKNOWN\nGET / HTTP/1.1\r\n')],
  ['of another protocol', text('PROXY UDP4 192.0.2.7 10.0.0.1 1 2\r\n')],
  ['whose line is too long', text(`PROXY UNKNOWN ${'x'.repeat(100)}`)],
  ['whose line is as long as a whole one, without its end', text(`PROXY UNKNOWN ${'x'.repeat(93)}`)],
  ['of version 1 in the form of version 2', v2(0x11, 0x11, IPV4)],
  ['with an unknown command', v2(0x22, 0x11, IPV4)],
  ['of an unknown family', v2(0x21, 0x41, IPV4)],
  ['of an unknown transport', v2(0x21, 0x13, IPV4)],
  ['without room for addresses', v2(0x21, 0x11, IPV4.slice(1))],
  ['of IPv6 with addresses of IPv4', v2(0x21, 0x21, IPV4)],
  ['that is too large', v2(0x21, 0x11, [], 4081)],
  ['that is the largest of all', v2(0x20, 0, [], 65_535)],
]

describe('a PROXY header', () => {
  it.each(VALID)('%s is parsed, and needs each of its bytes', (_, header, address) => {
    for (let i = 0; i < header.length; i++) expect(parseProxyHeader(header.subarray(0, i))).toBeUndefined()
    expect(parseProxyHeader(Buffer.concat([header, text('GET')]))).toEqual({ bytes: header.length, address })
  })

  it.each(INVALID)('%s is refused', (_, header) => {
    expect(parseProxyHeader(header)).toEqual(expect.any(String))
  })

  it('is at most 107 bytes or 4 kB, for any bytes', () => {
    const starts = fc.constantFrom(text(START), text('PROXY '), text('PROXY TCP4 '), v2(0x21, 0x11), text(''))
    fc.assert(
      fc.property(starts, fc.uint8Array({ maxLength: 200 }), (start, rest) => {
        const received = Buffer.concat([start, rest, Buffer.alloc(4096)])
        const header = parseProxyHeader(received)
        expect(header).toBeDefined()
        if (typeof header === 'object') expect(header.bytes).toBeLessThanOrEqual(4096)
      }),
    )
  })
})
