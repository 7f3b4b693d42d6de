import type { ForwardAuthProxy } from '../../src/downstream/forward-auth.ts'
import type { Call, Got } from './gateway.ts'

type Fields = NonNullable<Call['headers']>

/** The requests by which proxies ask, as their documentation and source say, besides the caller's own fields. */
const QUESTIONS: Record<
  ForwardAuthProxy,
  (method: string, path: string, host: string, fields: Fields) => Call
> = {
  // pkg/middlewares/auth/forward.go of Traefik: always GET, without a body.
  traefik: (method, path, host, fields) => ({
    path: '/',
    headers: { ...fields, 'X-Forwarded-Method': method, 'X-Forwarded-Host': host, 'X-Forwarded-Uri': path },
  }),
  caddy: (...asked) => QUESTIONS.traefik(...asked),
  haproxy: (...asked) => QUESTIONS.traefik(...asked),
  nginx: (method, path, host, fields) => ({
    path: '/',
    headers: { ...fields, Host: host, 'X-Original-Method': method, 'X-Original-URI': path },
  }),
  // The ext_authz filter of Envoy: the request's own method, host and path, and Content-Length: 0.
  envoy: (method, path, host, fields) => ({
    method,
    path,
    headers: { ...fields, Host: host, 'Content-Length': '0', 'X-Envoy-Internal': 'true' },
  }),
}

const REPORTED = { 'X-Forwarded-For': '203.0.113.7', 'X-Forwarded-Proto': 'https' }

/** Returns the request by which a proxy asks about a call. */
export function askedBy(proxy: ForwardAuthProxy, { method = 'GET', path, headers, ...others }: Call): Call {
  const { Host: host, ...fields } = { Host: 'api.example.com', ...REPORTED, ...headers }
  return { ...others, ...QUESTIONS[proxy](method, path!, host, fields) }
}

/** Returns the status and the body of an answer; nginx gets them in fields. */
export const answerIn = ({ status, body, headers }: Pick<Got, 'status' | 'body' | 'headers'>) => ({
  status: Number(headers['x-sluice-status'] ?? status),
  body: String(headers['x-sluice-body'] ?? body),
})
