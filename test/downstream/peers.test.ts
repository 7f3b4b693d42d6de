import { networkInterfaces } from 'node:os'
import { describe, expect, it } from 'vitest'
import { createPeers } from '../../src/downstream/peers.ts'
import { call, startGateway } from '../helpers/gateway.ts'
import { startUpstream } from '../helpers/upstream.ts'

describe('trusted proxies', () => {
  it.each([
    [[], '127.0.0.1', false],
    [['10.0.0.0/8'], '10.255.255.255', true],
    [['10.0.0.0/8'], '11.0.0.0', false],
    [['10.0.0.1/32'], '10.0.0.1', true],
    [['10.0.0.1/32'], '10.0.0.2', false],
    [['10.0.0.0/8'], '::ffff:10.0.0.1', true],
    [['10.0.0.0/8'], '::FFFF:a00:1', true],
    [['10.0.0.0/8'], '::10.0.0.1', false],
    [['::ffff:10.0.0.0/104'], '10.0.0.1', true],
    [['::ffff:10.0.0.0/104'], '11.0.0.1', false],
    [['2001:db8::/32'], '2001:DB8:ffff::1', true],
    [['2001:db8::/32'], '2001:db9::1', false],
    [['::1/128'], '::1', true],
    [['::1/128'], '127.0.0.1', false],
    [['0.0.0.0/0'], '::1', false],
    [['10.0.0.0/8'], '64:ff9b::a00:1', true],
    [['10.0.0.0/8'], '64:ff9b::b00:1', false],
    [['64:ff9b::a00:0/104'], '10.0.0.1', true],
    [['64:ff9b::/96'], '9.9.9.9', true],
    [['64:ff9b::/32'], '64:ff9b:1::1', true],
    [['fe80::/10'], 'fe80::1%eth0', true],
    [['10.0.0.0/8'], 'fe80::1%eth0', false],
    [['10.0.0.0/8', '::1/128'], '::1', true],
    [['10.0.0.0/8'], '', false],
    [['10.0.0.0/8'], '10.1', false],
    [['10.0.0.0/8'], '010.0.0.1', false],
    [['10.0.0.0/8'], 'localhost', false],
  ])('%j and %s: %s', (blocks, peer, trusted) => {
    expect(createPeers(blocks).trusts(peer)).toBe(trusted)
  })
})

describe('the caller', () => {
  const { caller } = createPeers(['10.0.0.0/8', 'fd00::/8'])

  it('the caller is searched in the last hundred addresses of a chain', () => {
    const hops = Array.from({ length: 2000 }, (_, i) => `10.1.${i >> 8}.${i & 255}`)
    expect(caller('10.0.0.1', hops.join(', '))).toBe(hops.at(-100))
    expect(caller('10.0.0.1', ['9.9.9.9', ...hops.slice(-99)].join(', '))).toBe('9.9.9.9')
  })

  it('the caller of an untrusted peer is the peer, for any X-Forwarded-For', () => {
    for (const claim of [undefined, '', '9.9.9.9', '10.0.0.1', '9.9.9.9, 10.0.0.1', '127.0.0.1'])
      expect(caller('8.8.8.8', claim)).toBe('8.8.8.8')
  })

  it.each([
    [undefined, '10.0.0.1'],
    ['9.9.9.9', '9.9.9.9'],
    ['9.9.9.9, 10.0.0.2', '9.9.9.9'],
    ['9.9.9.9,10.0.0.2 ,\t10.0.0.3', '9.9.9.9'],
    // Addresses before an untrusted hop are ignored: that hop wrote them.
    ['1.2.3.4, 9.9.9.9', '9.9.9.9'],
    ['10.0.0.9, 9.9.9.9', '9.9.9.9'],
    ['1.2.3.4, 9.9.9.9, 10.0.0.2', '9.9.9.9'],
    // All are trusted: the first is the caller.
    ['10.0.0.3, 10.0.0.2', '10.0.0.3'],
    ['2001:db8::1, fd00::2', '2001:db8::1'],
    ['::ffff:9.9.9.9', '9.9.9.9'],
    ['9.9.9.9, ::ffff:10.0.0.2', '9.9.9.9'],
    ['9.9.9.9:5678', '9.9.9.9'],
    ['[2001:db8::1]:5678', '2001:db8::1'],
    ['[2001:db8::1]', '2001:db8::1'],
    // Invalid: the address after it is the caller.
    ['', '10.0.0.1'],
    [',', '10.0.0.1'],
    ['9.9.9.9,', '10.0.0.1'],
    ['unknown', '10.0.0.1'],
    ['_hidden', '10.0.0.1'],
    ['9.9.9.9, unknown, 10.0.0.2', '10.0.0.2'],
    ['"9.9.9.9"', '10.0.0.1'],
    ['for=9.9.9.9', '10.0.0.1'],
    ['9.9.9.9:', '10.0.0.1'],
    ['9.9.9', '10.0.0.1'],
    ['9.9.9.999', '10.0.0.1'],
    ['09.9.9.9', '10.0.0.1'],
    ['0x09090909', '10.0.0.1'],
    ['[9.9.9.9', '10.0.0.1'],
    ['\u00009.9.9.9', '10.0.0.1'],
    ['9.9.9.9\u0000', '10.0.0.1'],
    ['localhost', '10.0.0.1'],
    ['x'.repeat(16_000), '10.0.0.1'],
  ])('behind trusted proxies that send %j is %s', (claim, expected) => {
    expect(caller('10.0.0.1', claim)).toBe(expected)
  })

  it('the caller is found in a chain of the maximum length of a head', () => {
    expect(caller('10.0.0.1', '10.0.0.2,'.repeat(1600) + '10.0.0.3')).toBe('10.0.0.2')
  })
})

const hasIpv6 = Object.values(networkInterfaces()).some((all) => all?.some(({ family }) => family === 'IPv6'))

describe.runIf(hasIpv6)('a caller by IPv4 of a gateway that listens on IPv6 too', () => {
  it.for([
    ['no peer', [], '127.0.0.1'],
    ['the peer by IPv4', ['127.0.0.0/8'], '9.9.9.9, 127.0.0.1'],
    ['the peer by its mapped address', ['::ffff:127.0.0.0/104'], '9.9.9.9, 127.0.0.1'],
    ['only IPv6 peers', ['::1/128'], '127.0.0.1'],
  ] as const)('is identified by its IPv4 address; trusted: %s', async ([, trustedProxies, forwardedFor]) => {
    const back = await startUpstream()
    const gateway = await startGateway({
      data: back.url,
      host: '::',
      trustedProxies,
      limits: { each: { per: ['ip'], limit: 2, window: '1m' } },
      routes: [{ match: '/*', upstream: 'data', authenticate: 'none', limits: ['each'] }],
    })
    const ask = (ip: string) => call(gateway.port, { headers: { 'X-Forwarded-For': ip } })
    expect((await ask('9.9.9.9')).status).toBe(200)
    const { headers } = back.seen[0]!
    expect(headers['x-forwarded-for']).toBe(forwardedFor)
    expect(headers['x-real-ip']).toBe(forwardedFor.split(',')[0])
    // An untrusted peer is counted by its own address.
    const remaining = forwardedFor === '127.0.0.1' ? '0' : '1'
    expect((await ask('8.8.8.8')).headers['x-ratelimit-remaining']).toBe(remaining)
  })
})
