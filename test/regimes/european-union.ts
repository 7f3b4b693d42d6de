import type { Ask, Scenario } from './scenario.ts'

const USER = { 'psu-ip-address': '192.0.2.7' }
const transactions: Ask = {
  path: '/v1/accounts/DE1/transactions',
  claims: { client_id: 'ledger', consent_id: 'c1' },
}
const agreed = (frequency: number): Ask => ({
  ...transactions,
  claims: { client_id: 'ledger', consent_id: `agreed-${frequency}`, frequency_per_day: frequency },
})

export const EUROPEAN_UNION: Scenario = {
  regime: 'european-union',
  timezone: 'Europe/Berlin',
  calls: {
    'transactions of DE1': transactions,
    'transactions of DE1, page 2': { ...transactions, path: '/v1/accounts/DE1/transactions?page=2' },
    'details of a transaction of DE1': { ...transactions, path: '/v1/accounts/DE1/transactions/t7' },
    'balances of DE1': { ...transactions, path: '/v1/accounts/DE1/balances' },
    'transactions of DE2': { ...transactions, path: '/v1/accounts/DE2/transactions' },
    'list of accounts': { ...transactions, path: '/v1/accounts' },
    'transactions of DE1, another consent': {
      ...transactions,
      claims: { client_id: 'ledger', consent_id: 'c2' },
    },
    'transactions of DE1, user present': { ...transactions, headers: USER },
    'transactions of DE1, PSU-IP-Address: yes': { ...transactions, headers: { 'psu-ip-address': 'yes' } },
    'transactions of DE1, 500 of the backend': { ...transactions, backend: 500 },
    'transactions, 6 a day agreed': agreed(6),
    'transactions, 1000 a day agreed': agreed(1000),
    'transactions, no consent in the token': { ...transactions, claims: { client_id: 'ledger' } },
    'a payment': { path: 'POST /v1/payments/sepa-credit-transfers', claims: { client_id: 'shop' } },
    'a consent': { path: 'POST /v1/consents', claims: { client_id: 'ledger' }, id: '99391c7e' },
  },
  steps: `
2026-03-02 05:00:00+01:00 | a consent | 200; X-Request-ID: 99391c7e | Not limited. The request id is echoed.
2026-03-02 05:00:00+01:00 | a payment, 20 times | 200 | Not limited.
2026-03-02 05:00:00+01:00 | transactions, no consent in the token | 403; 100000 of 100000 left | There is nothing to count by. The fields are those of the limit per day.
2026-03-02 06:00:00+01:00 | transactions of DE1 | 200; 3 of 4 left | First access.
2026-03-02 06:00:01+01:00 | transactions of DE1, page 2 | 200; 3 of 4 left | Within 5 minutes of the first access: part of it.
2026-03-02 06:00:02+01:00 | details of a transaction of DE1, 30 times | 200; 3 of 4 left | The same endpoint, part of the first access.
2026-03-02 06:00:03+01:00 | balances of DE1 | 200; 3 of 4 left | Another endpoint: its first access.
2026-03-02 06:00:04+01:00 | transactions of DE2 | 200; 3 of 4 left | Another account: its first access.
2026-03-02 06:00:05+01:00 | transactions of DE1, another consent | 200; 3 of 4 left | Another consent: its first access.
2026-03-02 06:00:06+01:00 | list of accounts | 200; 3 of 4 left | The list is an endpoint without an account.
2026-03-02 06:04:59.999+01:00 | transactions of DE1 | 200; 3 of 4 left | Still part of the first access.
2026-03-02 06:05:00+01:00 | transactions of DE1 | 200; 2 of 4 left | Second access: the 5 minutes are counted from the first call, not from the latest.
2026-03-02 12:00:00+01:00 | transactions of DE1, user present, 50 times | 200 | The user asks: not counted, no fields of the limit.
2026-03-02 12:10:00+01:00 | transactions of DE1, 500 of the backend | 500; 1 of 4 left | Third access. It counts although the backend failed: the rule has no exception.
2026-03-02 18:00:00+01:00 | transactions of DE1 | 200; 0 of 4 left | Fourth access.
2026-03-02 18:04:00+01:00 | transactions of DE1, page 2 | 200; 0 of 4 left | Part of the fourth access: it passes with 0 left.
2026-03-02 22:00:00+01:00 | transactions of DE1 | 429 ACCESS_EXCEEDED; 0 of 4 left; Retry-After: 28800 | A fifth access in 24 hours.
2026-03-02 22:00:01+01:00 | transactions of DE1, PSU-IP-Address: yes | 429 ACCESS_EXCEEDED; 0 of 4 left; Retry-After: 28799 | Not an IP address, so the user is not present.
2026-03-02 22:00:02+01:00 | transactions of DE1, user present | 200 | The user asks.
2026-03-02 22:00:03+01:00 | balances of DE1 | 200; 2 of 4 left | Another endpoint: its second access.
2026-03-03 05:59:59.999+01:00 | transactions of DE1 | 429 ACCESS_EXCEEDED; 0 of 4 left; Retry-After: 1 | The first access is not yet 24 hours old.
2026-03-03 06:00:00+01:00 | transactions of DE1 | 200; 0 of 4 left | The first access has left the 24 hours.
2026-03-03 06:05:00+01:00 | transactions of DE1 | 200; 0 of 4 left | The second access has left, too; this one counts.
2026-03-03 06:10:00+01:00 | transactions of DE1 | 429 ACCESS_EXCEEDED; 0 of 4 left; Retry-After: 21600 | The third access leaves at 12:10.
2026-03-03 08:00:00+01:00 | transactions, 6 a day agreed | 200; 5 of 6 left | The claim frequency_per_day is 6.
2026-03-03 09:00:00+01:00 | transactions, 6 a day agreed | 200; 4 of 6 left |
2026-03-03 10:00:00+01:00 | transactions, 6 a day agreed | 200; 3 of 6 left |
2026-03-03 11:00:00+01:00 | transactions, 6 a day agreed | 200; 2 of 6 left |
2026-03-03 12:00:00+01:00 | transactions, 6 a day agreed | 200; 1 of 6 left | Fifth access, admitted.
2026-03-03 13:00:00+01:00 | transactions, 6 a day agreed | 200; 0 of 6 left |
2026-03-03 14:00:00+01:00 | transactions, 6 a day agreed | 429 ACCESS_EXCEEDED; 0 of 6 left; Retry-After: 64800 | A seventh.
2026-03-03 14:00:00+01:00 | transactions, 1000 a day agreed | 200; 99 of 100 left | The bank's own maximum.
`,
}
