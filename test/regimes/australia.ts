import type { Ask, Scenario } from './scenario.ts'

const path = '/cds-au/v1/banking/accounts'
const ANA = { client_id: 'budget', sub: 'ana' }
/** A call with the token of a session. */
const session = (name: number, claims = ANA): Ask => ({ path, claims: { ...claims, session: name } })
/** Calls of several sessions, one of each. */
const sessions = (first: number): Ask => ({ path, claims: (i) => ({ ...ANA, session: first + i }) })
const present = (claims: Ask['claims']): Ask => ({
  path,
  headers: { 'x-fapi-customer-ip-address': '192.0.2.7' },
  ...(claims && { claims }),
})

export const AUSTRALIA: Scenario = {
  regime: 'australia',
  timezone: 'Australia/Sydney',
  calls: {
    'session 1': session(1),
    'session 2': session(2),
    'session 21': session(21),
    'session 41': session(41),
    'sessions 2 to 20': sessions(2),
    'sessions 22 to 39': sessions(22),
    'session 1 of Bo': session(1, { ...ANA, sub: 'bo' }),
    'session 1 of Ana, another product': session(1, { ...ANA, client_id: 'invoices' }),
    'session 1, Ana present': present({ ...ANA, session: 1 }),
    'Ana present': present(ANA),
    'Bo present': present({ ...ANA, sub: 'bo' }),
    'one of 50 customers present': present((i) => ({ ...ANA, sub: `customer-${i}` })),
    'one of 150 customers of 3 products present': present((i) => ({
      ...{ client_id: `product-${i % 3}`, sub: `customer-${i}` },
    })),
    'Bo present, another product': present({ client_id: 'invoices', sub: 'bo' }),
    'list of products': { path: '/cds-au/v1/banking/products', id: null },
    authorisation: { path: '/oidc/auth' },
  },
  steps: `
2026-10-03 08:00:00+10:00 | authorisation, 20 times | 200 | Not limited.
2026-10-03 09:00:00+10:00 | session 1 | 200; 19 of 20 left | First session of the day.
2026-10-03 09:00:01+10:00 | session 1, 5 times | 200; 19 of 20 left | The same token: the same session.
2026-10-03 09:00:01.500+10:00 | session 1 | 429 session-rate; 0 of 5 left; Retry-After: 1 | The 6th call of a session in a second.
2026-10-03 09:01:00+10:00 | session 1, 94 times, 250 ms apart | 200; 19 of 20 left | With these, 100 calls of the session; the refused one was not counted.
2026-10-03 09:02:00+10:00 | session 1 | 429 session-calls; 0 of 100 left; Retry-After: 86280 | The 101st call of a session. A new token is the shorter way.
2026-10-03 09:02:01+10:00 | session 1, Ana present | 200; 9 of 10 left | The customer is present: sessions are unlimited.
2026-10-03 10:00:00+10:00 | sessions 2 to 20, 19 times | 200; 0 of 20 left | 19 further tokens: 20 sessions.
2026-10-03 11:00:00+10:00 | session 21 | 429 sessions; 0 of 20 left; Retry-After: 46800 | The 21st token, until midnight.
2026-10-03 11:00:01+10:00 | session 2, 5 times | 200; 0 of 20 left | The first 20 sessions continue.
2026-10-03 11:00:02+10:00 | session 1 of Bo | 200; 19 of 20 left | Another customer.
2026-10-03 11:00:02+10:00 | session 1 of Ana, another product | 200; 19 of 20 left | Another software product.
2026-10-03 12:00:00+10:00 | Ana present, 10 times | 200; 0 of 10 left | 10 TPS per customer.
2026-10-03 12:00:00.500+10:00 | Ana present | 429 present-customer; 0 of 10 left; Retry-After: 1 | The 11th call in a second.
2026-10-03 12:00:00.500+10:00 | Bo present | 200; 9 of 10 left | Another customer.
2026-10-03 13:00:00+10:00 | one of 50 customers present, 50 times | 200; 9 of 10 left | 50 TPS per software product.
2026-10-03 13:00:00.500+10:00 | Bo present | 429 present-product; 0 of 50 left; Retry-After: 1 | The 51st call of the product in a second.
2026-10-03 13:00:00.500+10:00 | Bo present, another product | 200; 9 of 10 left | Another software product.
2026-10-03 14:00:00+10:00 | one of 150 customers of 3 products present, 150 times | 200; 9 of 10 left | 150 TPS of secure traffic.
2026-10-03 14:00:00.500+10:00 | Bo present | 429 total; 0 of 150 left; Retry-After: 1 | The 151st secure call in a second.
2026-10-03 14:00:00.500+10:00 | list of products | 200; 299 of 300 left; x-fapi-interaction-id: a new UUID | Public traffic has its own counter.
2026-10-03 23:59:59.999+10:00 | session 21 | 429 sessions; 0 of 20 left; Retry-After: 1 | The last millisecond of the day.
2026-10-04 00:00:00+10:00 | session 21 | 200; 19 of 20 left | A new day.
2026-10-04 00:00:01+10:00 | session 2 | 200; 18 of 20 left | A token that is used on both sides of midnight is a session of both days.
2026-10-04 00:30:00+10:00 | sessions 22 to 39, 18 times | 200; 0 of 20 left | 20 sessions.
2026-10-04 01:00:00+10:00 | session 41 | 429 sessions; 0 of 20 left; Retry-After: 79200 | Midnight is in 22 hours: summer time begins at 02:00, and the day has 23 hours.
2026-10-04 03:00:00+11:00 | session 41 | 429 sessions; 0 of 20 left; Retry-After: 75600 | An hour later: 02:00 to 03:00 did not exist.
2026-10-04 23:59:59.999+11:00 | session 41 | 429 sessions; 0 of 20 left; Retry-After: 1 | The last millisecond of the day.
2026-10-05 00:00:00+11:00 | session 41 | 200; 19 of 20 left | A new day, 23 hours after the one before it.
`,
}
