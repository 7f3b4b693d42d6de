import type { Ask, Scenario } from './scenario.ts'

const base = '/open-banking/accounts/v2/accounts'
const claims = { client_id: 'app', org_id: 'org-1', cpf_cnpj: '11122233396', consent_id: 'urn:bank:1' }
const history: Ask = { path: `${base}/BR1/transactions`, claims }

export const BRAZIL: Scenario = {
  regime: 'brazil',
  timezone: 'America/Sao_Paulo',
  calls: {
    'transactions of BR1': history,
    'transactions of BR1, 500 of the backend': { ...history, backend: 500 },
    'transactions of BR1, 422 of the backend': { ...history, backend: 422 },
    'transactions of BR1, another client of org-1': { ...history, claims: { ...claims, client_id: 'app-2' } },
    'transactions of BR1 for org-2': {
      ...history,
      claims: { ...claims, client_id: 'bank', org_id: 'org-2' },
    },
    'transactions of BR1, no CPF in the token': { ...history, claims: { client_id: 'app', org_id: 'org-1' } },
    'transactions of BR2': { ...history, path: `${base}/BR2/transactions` },
    'balances of BR1': { ...history, path: `${base}/BR1/balances` },
    'list of accounts': { ...history, path: base },
    'status of a consent': { path: '/open-banking/consents/v3/consents/urn:bank:1', claims },
    'status of a consent for org-2': {
      path: '/open-banking/consents/v3/consents/urn:bank:2',
      claims: { client_id: 'bank', org_id: 'org-2' },
    },
    'open data': { path: '/open-banking/products-services/v1/personal-accounts', id: null },
  },
  steps: `
2026-01-05 09:00:00-03:00 | transactions of BR1 | 200; 3 of 4 left | First call of January.
2026-01-05 09:00:00-03:00 | balances of BR1 | 200; 419 of 420 left | Another endpoint, of another class.
2026-01-05 09:00:00-03:00 | list of accounts | 200; 29 of 30 left | Counted by the consent.
2026-01-05 09:00:00-03:00 | transactions of BR2 | 200; 3 of 4 left | Another account: its own counter.
2026-01-05 09:00:00-03:00 | transactions of BR1 for org-2 | 200; 3 of 4 left | Another institution: its own counter.
2026-01-05 09:00:00-03:00 | transactions of BR1, no CPF in the token | 403; 1998 of 2000 left | There is nothing to count by. The fields are those of the limit by origin.
2026-01-12 09:00:00-03:00 | transactions of BR1, 500 of the backend | 500; 2 of 4 left | Counted while it is under way, and no longer after its end.
2026-01-12 09:00:01-03:00 | transactions of BR1, 422 of the backend | 422; 2 of 4 left | The same.
2026-01-12 09:00:02-03:00 | transactions of BR1 | 200; 2 of 4 left | Second call with success.
2026-01-19 09:00:00-03:00 | transactions of BR1, another client of org-1 | 200; 1 of 4 left | Third: the clients of an institution share its counter.
2026-01-26 09:00:00-03:00 | transactions of BR1 | 200; 0 of 4 left | Fourth.
2026-01-26 09:00:01-03:00 | transactions of BR1 | 429 monthly-4; 0 of 4 left; Retry-After: 485999 | A fifth call in January.
2026-01-31 21:00:00-03:00 | transactions of BR1 | 429 monthly-4; 0 of 4 left; Retry-After: 10800 | In UTC it is February, in Brasília it is not.
2026-01-31 23:59:59.999-03:00 | transactions of BR1 | 429 monthly-4; 0 of 4 left; Retry-After: 1 | The last millisecond of January.
2026-02-01 00:00:00-03:00 | transactions of BR1 | 200; 3 of 4 left | February.
2026-02-02 10:00:57-03:00 | status of a consent, 200 times | 200; 300 of 500 left | No operational limit. The limit by origin: 500 calls in a minute of the clock.
2026-02-02 10:00:58-03:00 | status of a consent, 200 times | 200; 100 of 500 left |
2026-02-02 10:00:59-03:00 | status of a consent, 100 times | 200; 0 of 500 left |
2026-02-02 10:00:59.999-03:00 | status of a consent | 429 origin-500; 0 of 500 left; Retry-After: 1 | The 501st call of the minute.
2026-02-02 10:00:59.999-03:00 | status of a consent for org-2 | 200; 499 of 500 left | Another origin.
2026-02-02 10:01:00-03:00 | status of a consent | 200; 499 of 500 left | Second 00.000: the counter starts from zero.
2026-02-02 10:02:00-03:00 | status of a consent, 200 times | 200; 300 of 500 left |
2026-02-02 10:02:00-03:00 | status of a consent for org-2, 100 times | 200; 400 of 500 left | 300 calls in this second, of all origins.
2026-02-02 10:02:00.500-03:00 | status of a consent for org-2 | 529 global; 0 of 300 left; Retry-After: 1 | The 301st call in a second: site is overloaded.
2026-02-02 10:02:00.999-03:00 | open data | 529 global; 0 of 300 left; Retry-After: 1; x-fapi-interaction-id: a new UUID | The global limit is one counter for all.
2026-02-02 10:02:01-03:00 | status of a consent for org-2 | 200; 399 of 500 left | A second later. The refused call was counted in no limit.
2026-02-02 10:02:01-03:00 | open data | 200; 499 of 500 left; x-fapi-interaction-id: a new UUID | Without a token, the origin is the IP address.
`,
}
