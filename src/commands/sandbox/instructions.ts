import { CALLBACK, CLIENT, DATA_SCOPES } from './backends.ts'

type Addresses = Readonly<Record<'gateway' | 'admin' | 'identity' | 'data' | 'issuer', string>>

/** Returns a command that extracts a string member from a line of JSON. */
const member = (name: string): string => `sed -E 's/.*"${name}":"([^"]+)".*/\\1/'`

/** Returns the addresses of the sandbox, and commands to paste into a shell with bash, curl and sed. */
export function instructions({ gateway, admin, identity, data, issuer }: Addresses, limit: number): string {
  const { id, secret } = CLIENT
  const basic = `-u ${id}:${secret}`
  const bearer = '-H "Authorization: Bearer $TOKEN"'
  const sync = `${gateway}/v3/sync/1ffe704d-3962-4a92-8c8e-293880fb449a`
  const push = [
    `curl -s ${basic} ${issuer}/request -d response_type=code -d client_id=${id}`,
    `-d redirect_uri=${gateway}${CALLBACK} --data-urlencode 'scope=openid ${DATA_SCOPES}'`,
    '-d state=a-state -d nonce=a-nonce',
  ].join(' ')

  return `
Sluice's sandbox

  ${gateway.padEnd(28)} the gateway; ${issuer} is the issuer
  ${admin.padEnd(28)} the console; also /healthz /readyz /metrics
  ${identity.padEnd(28)} the OpenID Provider behind it
  ${data.padEnd(28)} the Data API behind it

Paste these into another terminal. Ctrl-C here ends everything.

An access token for the client "${id}":

TOKEN=$(curl -s ${basic} -d grant_type=client_credentials --data-urlencode 'scope=${DATA_SCOPES}' ${issuer}/token | ${member('access_token')})

A call: 200, and the X-RateLimit headers show what remains:

curl -i ${bearer} '${gateway}/v3/transactions?limit=2'

What remains of the client's limits, which costs no call:

curl -s ${bearer} ${gateway}/v3/rate-limits; echo

A sync of a bank connection, allowed once in 5 seconds: 200:

curl -i -X POST ${bearer} ${sync}

Two syncs in a row: the second is always refused with 429:

for i in 1 2; do curl -i -X POST ${bearer} ${sync}; echo; done

A pushed authorisation request, and the address at which the user goes on; open it in a browser:

REQUEST_URI=$(${push} | ${member('request_uri')})
echo "${issuer}/auth?client_id=${id}&request_uri=$REQUEST_URI"

The rest of the client's ${limit} calls a minute (sooner with --limit 5): 200 until they are used up, then 429:

for i in $(seq ${limit + 1}); do curl -s -o /dev/null -w '%{http_code}\\n' ${bearer} ${gateway}/v3/transactions; done
`
}
