import { expect, it } from 'vitest'
import { mergeStatus, type Status } from '../../src/observe/status.ts'

const FIRST: Status = {
  workers: 1,
  gateways: 3,
  sockets: 7,
  calls: { requests: [1, 2], refused: [0, 1], failed: [1, 0] },
  store: {
    modes: ['store', 'local'],
    withoutRedis: 6,
    lastWithoutRedis: '2025-06-15T15:06:40.000Z',
    outage: null,
  },
  overridesKnown: true,
  upstreams: [
    {
      upstream: 'data',
      address: 'http://a',
      up: true,
      sockets: 5,
      maxSockets: 9,
      queue: 2,
      waiting: 4,
      oldestWaitSeconds: 1.5,
      webSockets: 2,
    },
  ],
  issuers: [{ issuer: 'i', ageSeconds: 12, failures: 3, introspectionUp: true }],
  certificates: [
    { certificate: 'listen.tls.cert', expiresAt: 1, state: 'failed', message: 'expired at 1970; renew it' },
  ],
  shadowOver: [{ limit: 'trial', calls: 4 }],
}

it('adds up the numbers of processes, and shows the worst state of each part', () => {
  const [upstream] = FIRST.upstreams
  const outage = { since: '2025-06-15T15:06:41.000Z', text: 'counting in this process' }
  const second: Status = {
    ...FIRST,
    gateways: 4,
    store: { modes: ['local'], withoutRedis: 1, lastWithoutRedis: null, outage },
    overridesKnown: false,
    upstreams: [{ ...upstream!, up: false, oldestWaitSeconds: 0.5 }],
    issuers: [
      { issuer: 'i', ageSeconds: 10, failures: 0, introspectionUp: false },
      { issuer: 'new', ageSeconds: 1, failures: 0, introspectionUp: null },
    ],
    shadowOver: [{ limit: 'other', calls: 1 }, ...FIRST.shadowOver],
  }
  expect(mergeStatus([FIRST, second])).toEqual({
    workers: 2,
    gateways: 4,
    sockets: 14,
    calls: { requests: [2, 4], refused: [0, 2], failed: [2, 0] },
    store: {
      modes: ['store', 'local'],
      withoutRedis: 7,
      lastWithoutRedis: '2025-06-15T15:06:40.000Z',
      outage,
    },
    overridesKnown: false,
    upstreams: [
      {
        upstream: 'data',
        address: 'http://a',
        up: false,
        sockets: 10,
        maxSockets: 18,
        queue: 4,
        waiting: 8,
        oldestWaitSeconds: 1.5,
        webSockets: 4,
      },
    ],
    issuers: [
      { issuer: 'i', ageSeconds: 12, failures: 3, introspectionUp: false },
      { issuer: 'new', ageSeconds: 1, failures: 0, introspectionUp: null },
    ],
    certificates: FIRST.certificates,
    shadowOver: [
      { limit: 'trial', calls: 8 },
      { limit: 'other', calls: 1 },
    ],
  })
  expect(mergeStatus([])).toMatchObject({
    workers: 0,
    gateways: null,
    store: { outage: null },
    upstreams: [],
  })
})
