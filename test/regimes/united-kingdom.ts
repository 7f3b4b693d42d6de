import type { Ask, Scenario } from './scenario.ts'

const base = '/open-banking/v4.0/aisp'
const balances: Ask = {
  path: `${base}/accounts/GB1/balances`,
  claims: { client_id: 'ledger', openbanking_intent_id: 'aac-1' },
}

export const UNITED_KINGDOM: Scenario = {
  regime: 'united-kingdom',
  timezone: 'Europe/London',
  calls: {
    'balances of GB1': balances,
    'balances of GB1, page 2': { ...balances, path: `${balances.path}?page=2` },
    'balances of GB1 at v3.1': { ...balances, path: balances.path.replace('v4.0', 'v3.1') },
    'transactions of GB1': { ...balances, path: `${base}/accounts/GB1/transactions` },
    'details of GB1': { ...balances, path: `${base}/accounts/GB1` },
    'balances of all accounts': { ...balances, path: `${base}/balances` },
    'secrets of GB1': { ...balances, path: `${base}/accounts/GB1/secrets` },
    'balances of GB1, user present': {
      ...balances,
      headers: { 'x-fapi-customer-ip-address': '2001:db8::7' },
    },
    'balances of GB1, with an interaction id': { ...balances, id: '93bac548-d2de-4546-b106-880a5018460d' },
    'balances of GB1, without an interaction id': { ...balances, id: null },
    'a consent': { path: `POST ${base}/account-access-consents`, claims: { client_id: 'ledger' } },
    'a payment': { path: 'POST /open-banking/v4.0/pisp/domestic-payments', claims: { client_id: 'shop' } },
  },
  steps: `
2026-03-28 05:00:00+00:00 | a consent | 200 | Not limited.
2026-03-28 05:00:00+00:00 | a payment, 20 times | 200 | Not limited.
2026-03-28 06:00:00+00:00 | balances of GB1 | 200; 3 of 4 left | First access.
2026-03-28 06:01:00+00:00 | balances of GB1, page 2 | 200; 3 of 4 left | Within 5 minutes of the first access: part of it.
2026-03-28 06:02:00+00:00 | transactions of GB1 | 200; 3 of 4 left | Another endpoint: its first access.
2026-03-28 06:02:00+00:00 | details of GB1 | 200; 3 of 4 left | Another endpoint: its first access.
2026-03-28 06:02:00+00:00 | balances of all accounts | 200; 3 of 4 left | Another endpoint: its first access.
2026-03-28 06:02:00+00:00 | secrets of GB1 | 400; 99995 of 100000 left | Not an endpoint that is counted: a made-up name gets no counter.
2026-03-28 09:00:00+00:00 | balances of GB1, with an interaction id | 200; 2 of 4 left; x-fapi-interaction-id: 93bac548-d2de-4546-b106-880a5018460d | Second access. The interaction id is echoed.
2026-03-28 12:00:00+00:00 | balances of GB1, user present, 50 times | 200 | The user asks: not counted.
2026-03-28 13:00:00+00:00 | balances of GB1 at v3.1 | 200; 1 of 4 left | Third access: the versions of the API share their counters.
2026-03-28 18:00:00+00:00 | balances of GB1 | 200; 0 of 4 left | Fourth access.
2026-03-28 22:00:00+00:00 | balances of GB1, without an interaction id | 429 unattended; 0 of 4 left; Retry-After: 28800; x-fapi-interaction-id: a new UUID | A fifth access in 24 hours. The gateway makes an interaction id.
2026-03-28 22:00:01+00:00 | balances of GB1, user present | 200 | The user asks.
2026-03-29 06:00:00+01:00 | balances of GB1 | 429 unattended; 0 of 4 left; Retry-After: 3600 | Summer time has begun at 01:00. The first access is 23 hours old.
2026-03-29 06:59:59.999+01:00 | balances of GB1 | 429 unattended; 0 of 4 left; Retry-After: 1 | Not yet 24 hours.
2026-03-29 07:00:00+01:00 | balances of GB1 | 200; 0 of 4 left | The first access has left the 24 hours.
`,
}
