import type { Socket } from 'node:net'
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { fieldsObject } from '../helpers/fields.ts'
import { createRequestFields } from '../../src/downstream/request-fields.ts'
import { requestHeaders } from '../../src/upstream/request-headers.ts'
import { createPeers } from '../../src/downstream/peers.ts'
import { PATIENCE_MS, runs } from '../helpers/runs.ts'
import { words } from '../helpers/words.ts'

const OWN = [
  'x-forwarded-for',
  'x-forwarded-proto',
  'x-forwarded-host',
  'x-forwarded-port',
  'x-real-ip',
  'x-request-id',
]
const name = fc
  .tuple(
    fc.oneof(
      fc.constantFrom(
        ...OWN,
        ...words(`
          forwarded connection host authorization content-length content-type cookie dpop te trailer
          upgrade expect keep-alive proxy-connection transfer-encoding x-http-method-override
          x-original-url client-cert x-ssl-client-cert x-forwarded-client-cert accept x-custom-name
          constructor tostring
        `),
      ),
      fc.stringMatching(/^[a-z0-9!#$%&'*+.^_`|~-]{1,20}$/),
    ),
    fc.constantFrom('-', '-', '-', '_', '.'),
  )
  .map(([name, dash]) => name.replaceAll('-', dash))
const option = fc.oneof(
  name,
  fc.constantFrom(
    '',
    'close',
    'keep-alive',
    'X-Custom-Name',
    'Authorization',
    ' host ',
    '\tx-real-ip',
    ',',
    '"quoted"',
  ),
  fc.string(),
)
const headers = fc
  .tuple(
    fc.dictionary(name, fc.constant('claimed'), { noNullPrototype: true }),
    fc.option(
      fc.array(option).map((options) => options.join(', ')),
      { nil: undefined },
    ),
  )
  .map(([fields, connection]): Record<string, string> => ({
    host: 'a',
    ...fields,
    ...(connection !== undefined && { connection }),
  }))

it(
  'any fields of an untrusted peer: hop-by-hop fields, and fields that only a proxy may set, are not forwarded',
  () => {
    fc.assert(
      fc.property(headers, (sent) => {
        const before = structuredClone(sent)
        const received = {
          request: { headers: { host: 'a' }, socket: { localPort: 80 } as Socket },
          peer: '1.1.1.1',
          ip: '1.1.1.1',
          requestId: 'r',
          trusted: false,
        }
        const fields = createRequestFields({
          requestId: 'x-request-id',
          counted: [],
          identity: [],
          callers: [],
        })
        const out = fieldsObject(requestHeaders(sent, received, fields, 'x-request-id'))
        expect(sent).toEqual(before)
        expect(out).toMatchObject({
          'x-forwarded-for': '1.1.1.1',
          'x-forwarded-proto': 'http',
          'x-forwarded-host': 'a',
          'x-forwarded-port': '80',
          'x-real-ip': '1.1.1.1',
          'x-request-id': 'r',
        })
        for (const [name, value] of Object.entries(out)) {
          if (OWN.includes(name)) continue
          expect(value).toBe(sent[name])
          expect(name.replaceAll(/[^a-z0-9]/g, '-')).not.toMatch(
            /^(?:x-forwarded-.*|forwarded|x-real-ip|client-cert|x-ssl-.*|x-http-method-override|x-original-url|connection|te|trailer|upgrade|expect|keep-alive|proxy-connection|transfer-encoding|x-request-id)$/,
          )
        }
        for (const judged of ['host', 'authorization', 'content-type', 'cookie', 'dpop'])
          expect(out[judged]).toBe(sent[judged])
        expect(
          Object.keys(out).filter((name) => /^content(?:[_.](?:length|type)|-length)$/.test(name)),
        ).toEqual([])
      }),
      runs(1000),
    )
  },
  PATIENCE_MS,
)

it(
  'any X-Forwarded-For: the caller is an address in it that is followed only by trusted ones, or the peer',
  () => {
    const hop = fc.oneof(
      fc.constantFrom(
        '10.0.0.1',
        '10.9.9.9',
        '::ffff:10.0.0.2',
        '9.9.9.9',
        '2001:db8::1',
        'fd00::1',
        'unknown',
        '',
        '_x',
        '10.0.0.1:80',
        '[fd00::1]:80',
      ),
      fc.ipV4(),
      fc.ipV6(),
      fc.string(),
    )
    const peers = createPeers(['10.0.0.0/8', 'fd00::/8'])
    fc.assert(
      fc.property(fc.constantFrom('10.0.0.1', '9.9.9.9', 'fd00::1', ''), fc.array(hop), (peer, chain) => {
        const claim = chain.join(', ')
        const caller = peers.caller(peer, claim)
        if (caller === peer) return
        expect(peers.trusts(peer)).toBe(true)
        expect(claim).toContain(caller)
        // All addresses after it are trusted.
        const hops = claim.split(',')
        const at = hops.findLastIndex((text) => text.includes(caller))
        for (const later of hops.slice(at + 1))
          expect(
            peers.trusts(
              later
                .trim()
                .replace(/^\[(.*)\]:\d+$/, '$1')
                .replace(/^([\d.]+):\d+$/, '$1'),
            ),
          ).toBe(true)
      }),
      runs(1000),
    )
  },
  PATIENCE_MS,
)
