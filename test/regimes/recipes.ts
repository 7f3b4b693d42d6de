import type { Scenario } from './scenario.ts'

const from = (address: string) => ({ 'X-Forwarded-For': address })
const withKey = (key: string, address = '192.0.2.7') => ({ 'X-Api-Key': key, ...from(address) })

const login = { path: 'POST /login', headers: from('192.0.2.7'), backend: 401 }

const LOGIN: Scenario = {
  regime: 'login',
  timezone: 'UTC',
  calls: {
    'login, wrong password': login,
    'login, right password': { ...login, backend: 200 },
    'password reset': { ...login, path: 'POST /password-resets', backend: 200 },
    'login from another address': { ...login, headers: from('192.0.2.8'), backend: 200 },
    'login from 2001:db8::1': { ...login, headers: from('2001:db8::1') },
    'login from 2001:db8::2': { ...login, headers: from('2001:db8::2') },
    'another page': { path: '/prices', headers: from('192.0.2.7') },
  },
  steps: `
2026-03-02 09:00:00+00:00 | login, wrong password, 9 times | 401; 1 of 10 left | The backend refuses the password. The gateway counts the attempts.
2026-03-02 09:00:10+00:00 | login, right password | 200; 0 of 10 left | The tenth attempt. Successful ones count, too.
2026-03-02 09:00:20+00:00 | login, wrong password | 429 attempts; 0 of 10 left; Retry-After: 40 | The first attempts leave the window at 09:01:00.
2026-03-02 09:00:20+00:00 | password reset | 429 attempts; 0 of 10 left; Retry-After: 40 | The same limit, so the same counter.
2026-03-02 09:00:20+00:00 | login from another address | 200; 9 of 10 left | A counter for each address.
2026-03-02 09:00:20+00:00 | another page | 200; 599 of 600 left | Another limit.
2026-03-02 09:00:30+00:00 | login from 2001:db8::1, 10 times | 401; 0 of 10 left |
2026-03-02 09:00:31+00:00 | login from 2001:db8::2 | 429 attempts; 0 of 10 left; Retry-After: 59 | Addresses of one /64 are one caller.
2026-03-02 09:01:00+00:00 | login, wrong password | 401; 8 of 10 left | The refused attempts did not count.
2026-03-02 09:05:00+00:00 | login, wrong password, 89 times, 7000 ms apart | 401; 1 of 10 left | Slower than 10 a minute: the hundredth attempt of the day.
2026-03-02 10:00:00+00:00 | login, wrong password | 429 attempts-a-day; 0 of 100 left; Retry-After: 82800 | Until 24 hours after the first.
`,
}

const search = { path: '/search', headers: withKey('alpha') }

const EXPENSIVE_SEARCH: Scenario = {
  regime: 'expensive-search',
  timezone: 'UTC',
  calls: {
    search,
    'search with another key': { ...search, headers: withKey('beta') },
    'another call': { path: '/orders', headers: withKey('alpha') },
    'search without a key': { path: '/search' },
  },
  steps: `
2026-03-02 09:00:00+00:00 | search, 10 times | 200; 0 of 10 left | Each also uses one of the 600 calls.
2026-03-02 09:00:01+00:00 | search | 429 searches; 0 of 10 left; Retry-After: 59 | Costs nothing: it is charged to no limit.
2026-03-02 09:00:01+00:00 | another call | 200; 589 of 600 left | Ten searches and this call are counted.
2026-03-02 09:00:02+00:00 | search with another key, 10 times | 200; 0 of 10 left | A counter for each key.
2026-03-02 09:00:02+00:00 | search without a key | 400 | There is nothing to count by.
2026-03-02 09:01:10+00:00 | search, 10 times | 200; 0 of 10 left | A minute later.
2026-03-02 09:01:10+00:00 | search with another key, 5 times | 200; 5 of 10 left | The fifteenth search of this second.
2026-03-02 09:01:10.500+00:00 | search with another key | 429 all-searches; 0 of 15 left; Retry-After: 1 | All keys together have made 15 searches within a second.
`,
}

const call = { path: '/orders', claims: { client_id: 'acme', plan: 'free' } }

const PLANS: Scenario = {
  regime: 'plans',
  timezone: 'UTC',
  calls: {
    'call, plan free': call,
    'call, plan team': { ...call, claims: { client_id: 'blue', plan: 'team' } },
    'call without a plan': { ...call, claims: { client_id: 'coal' } },
    'call of big-customer, plan team': { ...call, claims: { client_id: 'big-customer', plan: 'team' } },
  },
  steps: `
2026-03-02 09:00:00+00:00 | call, plan free, 60 times | 200; 0 of 60 left | The calls of a minute.
2026-03-02 09:00:30+00:00 | call, plan free | 429 requests; 0 of 60 left; Retry-After: 30 |
2026-03-02 09:00:30+00:00 | call, plan team | 200; 599 of 600 left | The claim gives another limit.
2026-03-02 09:00:30+00:00 | call without a plan | 200; 59 of 60 left | default.
2026-03-02 09:00:30+00:00 | call of big-customer, plan team | 200; 1999 of 2000 left | A client's own limit replaces that of the claim.
2026-03-02 09:01:00+00:00 | call, plan free, 40 times | 200; 20 of 60 left | The hundredth call in March.
2026-03-02 09:01:01+00:00 | call, plan free | 429 monthly; 0 of 100 left; Retry-After: 2559539 | Until April begins.
2026-04-01 00:00:00+00:00 | call, plan free | 200; 59 of 60 left | April.
`,
}

const hook = '123e4567-e89b-12d3-a456-426614174000'
const delivery = { path: `POST /hooks/${hook}`, headers: from('192.0.2.7') }

const WEBHOOKS: Scenario = {
  regime: 'webhooks',
  timezone: 'UTC',
  calls: {
    delivery,
    'delivery for another customer': { ...delivery, path: `POST /hooks/${hook.replace('1', '2')}` },
    'the same, by another sender': { ...delivery, headers: from('192.0.2.8') },
    'delivery for "shop-1"': { ...delivery, path: 'POST /hooks/shop-1' },
  },
  steps: `
2026-03-02 09:00:00+00:00 | delivery, 20 times | 200; 0 of 20 left | A burst, as after a sale.
2026-03-02 09:00:00.100+00:00 | delivery | 429 deliveries; 0 of 20 left; Retry-After: 1 | The sender delivers it again, as senders of webhooks do after a 429.
2026-03-02 09:00:00.100+00:00 | the same, by another sender | 429 deliveries; 0 of 20 left; Retry-After: 1 | The customer's limit, from any address.
2026-03-02 09:00:00.100+00:00 | delivery for another customer | 200; 19 of 20 left | Is not delayed.
2026-03-02 09:00:00.100+00:00 | delivery for "shop-1" | 400 | Not a UUID.
2026-03-02 09:00:01+00:00 | delivery | 200; 19 of 20 left |
`,
}

const member = { path: '/orders', claims: { client_id: 'app-1', org_id: 'org-1' } }

const ORGANISATIONS: Scenario = {
  regime: 'organisations',
  timezone: 'UTC',
  calls: {
    'call of app-1': member,
    'call of app-2': { ...member, claims: { client_id: 'app-2', org_id: 'org-1' } },
    'call of app-3': { ...member, claims: { client_id: 'app-3', org_id: 'org-1' } },
    'call of org-2': { ...member, claims: { client_id: 'app-9', org_id: 'org-2' } },
    'call without org_id': { ...member, claims: { client_id: 'app-9' } },
  },
  steps: `
2026-03-02 09:00:00+00:00 | call of app-1, 400 times | 200; 0 of 400 left |
2026-03-02 09:00:01+00:00 | call of app-1 | 429 client; 0 of 400 left; Retry-After: 59 | The client's limit. The organisation has 600 calls left.
2026-03-02 09:00:02+00:00 | call of app-2, 400 times | 200; 0 of 400 left |
2026-03-02 09:00:03+00:00 | call of app-3, 200 times | 200; 200 of 400 left | The thousandth call of org-1.
2026-03-02 09:00:04+00:00 | call of app-3 | 429 organisation; 0 of 1000 left; Retry-After: 56 | The organisation's limit. A 429 reports the limit that refused.
2026-03-02 09:00:04+00:00 | call of org-2 | 200; 399 of 400 left | Another organisation.
2026-03-02 09:00:04+00:00 | call without org_id | 403 | There is nothing to count by.
`,
}

const keyed = { path: '/orders', headers: withKey('alpha') }

const BURSTS: Scenario = {
  regime: 'bursts',
  timezone: 'UTC',
  calls: { call: keyed, 'call with another key': { ...keyed, headers: withKey('beta') } },
  steps: `
2026-03-02 09:00:00+00:00 | call, 20 times | 200; 100 of 120 left | At once.
2026-03-02 09:00:00.500+00:00 | call | 429 burst; 0 of 20 left; Retry-After: 1 | The 21st within a second.
2026-03-02 09:00:01+00:00 | call, 20 times | 200; 80 of 120 left |
2026-03-02 09:00:02+00:00 | call, 20 times | 200; 60 of 120 left |
2026-03-02 09:00:03+00:00 | call, 60 times, 500 ms apart | 200; 0 of 120 left | Two a second, up to 09:00:32.500.
2026-03-02 09:00:33+00:00 | call | 429 sustained; 0 of 120 left; Retry-After: 27 | The 121st within a minute.
2026-03-02 09:00:33+00:00 | call with another key | 200; 119 of 120 left |
2026-03-02 09:01:00+00:00 | call, 20 times | 200; 0 of 120 left | The first burst has left the window: as many calls are available again.
`,
}

const regional = { path: '/orders', claims: { client_id: 'acme' } }

const REGIONS: Scenario = {
  regime: 'regions',
  timezone: 'UTC',
  calls: { call: regional },
  steps: `
2026-03-02 09:00:00+00:00 | call, 500 times | 200; 0 of 500 left | The part of this region.
2026-03-02 09:00:01+00:00 | call | 429 requests; 0 of 500 left; Retry-After: 59 | Also if the client has made no call in the other region.
`,
}

const user = { client_id: 'acme' }
const job = { client_id: 'acme', use: 'job' }

const DATA_API: Scenario = {
  regime: 'data-api',
  timezone: 'Europe/Lisbon',
  calls: {
    read: { path: '/v3/accounts', claims: user },
    write: { path: 'POST /v3/accounts', claims: user },
    'read of a job': { path: '/v3/accounts', claims: job },
    export: { path: '/v3/exports/1', claims: user },
  },
  steps: `
2026-03-02 09:00:00+00:00 | read, 10 times | 200; 90 of 100 left | A read takes 1 point.
2026-03-02 09:00:01+00:00 | write | 200; 85 of 100 left | A write takes 5.
2026-03-02 09:00:02+00:00 | read of a job, 45 times | 200; 0 of 60 left | Jobs get what is left of the first 60 points.
2026-03-02 09:00:03+00:00 | read of a job | 429 jobs; 0 of 60 left; Retry-After: 57 | When the first point leaves the window.
2026-03-02 09:00:04+00:00 | read | 200; 39 of 100 left | The rest is for users.
2026-03-02 09:00:05+00:00 | export, 3 at once | 2 × 200; 19 of 100 left; 1 × 429 exports; 0 of 2 left; Retry-After: 1 | The third is refused, and takes no points.
2026-03-02 09:00:06+00:00 | export | 200; 9 of 100 left | The first two have ended.
2026-03-02 09:00:07+00:00 | export | 429 points; 9 of 100 left; Retry-After: 53 | An export takes 10.
2026-03-02 09:00:08+00:00 | write | 200; 4 of 100 left | A cheaper call passes meanwhile.
2026-03-02 09:02:00+00:00 | read, 89 times | 200; 11 of 100 left | Up to the 150 calls of the week.
2026-03-02 09:02:00+00:00 | read | 429 week; 0 of 150 left; Retry-After: 572280 | Until Monday.
2026-03-09 00:00:00+00:00 | read | 200; 99 of 100 left | The next week.
`,
}

export const RECIPES = [LOGIN, EXPENSIVE_SEARCH, PLANS, WEBHOOKS, ORGANISATIONS, BURSTS, REGIONS, DATA_API]
