import { CLIENT, DATA_SCOPES, LOAD } from './backends.ts'

const CONNECTION = '1ffe704d-3962-4a92-8c8e-293880fb449a'
const TICK_MS = 100
/** A token is valid for an hour. */
const TOKEN_MS = 1_800_000
const TIMEOUT_MS = 5000
/** Maximum open calls: beyond it, a gateway that does not answer gets no more. */
const MAX_OPEN = 50

/** Sends calls of the clients of `LOAD` to each gateway in turn until `signal` is aborted. Some are refused, and failures are ignored. */
export function sendLoad(gateways: readonly string[], signal: AbortSignal): void {
  const tokens = new Map<string, { readonly token: string; readonly until: number }>()
  let open = 0
  let sent = 0

  const ask = (path: string, init: RequestInit) => {
    const gateway = gateways[sent++ % gateways.length]!
    return fetch(gateway + path, { ...init, signal: AbortSignal.timeout(TIMEOUT_MS) })
  }
  async function tokenOf(id: string): Promise<string> {
    const known = tokens.get(id)
    if (known !== undefined && known.until > Date.now()) return known.token
    const form = {
      grant_type: 'client_credentials',
      client_id: id,
      client_secret: CLIENT.secret,
      scope: DATA_SCOPES,
    }
    const response = await ask('/oidc/token', { method: 'POST', body: new URLSearchParams(form) })
    const { access_token: token } = (await response.json()) as { access_token: string }
    tokens.set(id, { token, until: Date.now() + TOKEN_MS })
    return token
  }
  async function call(id: string): Promise<void> {
    // One call in 20 is a sync, one in 40 has a wrong path, and one in 40 a wrong token.
    const kind = Math.floor(Math.random() * 40)
    const token = kind === 0 ? 'wrong' : await tokenOf(id)
    const path = kind === 1 ? '/v3/nothing' : kind < 4 ? `/v3/sync/${CONNECTION}` : '/v3/transactions'
    const method = kind === 2 || kind === 3 ? 'POST' : 'GET'
    await (await ask(path, { method, headers: { Authorization: `Bearer ${token}` } })).arrayBuffer()
  }

  const timer = setInterval(() => {
    for (const [id, perSecond] of Object.entries(LOAD)) {
      const count = Math.floor((perSecond * TICK_MS) / 1000 + Math.random())
      for (let i = 0; i < count && open < MAX_OPEN; i++) {
        open++
        void call(id)
          .catch(() => {})
          .finally(() => open--)
      }
    }
  }, TICK_MS)
  signal.addEventListener('abort', () => clearInterval(timer))
}
