import { keysOf } from './clients.ts'
import { issuers, missing } from './identity.ts'
import { clientsOf, limits } from './limits.ts'
import { parameters, parts } from './parts.ts'
import { routes } from './routes.ts'
import { redis } from './store.ts'
import { type Outline, outline } from './outline.ts'
import type { Mistake } from '../yaml/source.ts'
import { upstreams } from './upstreams.ts'
import { durationMs } from '../sections/values.ts'

/** The mistakes that no value makes alone: names that lead nowhere, routes that hide others, and the like. */
export function crossCheck(value: Readonly<Record<string, unknown>>): readonly Mistake[] {
  const file = outline.parse(value)
  return [
    ...listeners(file),
    ...redis(file),
    ...upstreams(file),
    ...issuers(file),
    ...clientsOf(file),
    ...keysOf(file),
    ...limits(file),
    ...parts(file),
    ...parameters(file),
    ...routes(file),
    ...missing(file),
  ]
}

function* listeners({ listen, admin }: Outline): Generator<Mistake> {
  const [host, port] = [listen.host ?? '0.0.0.0', listen.port ?? 8080]
  const [adminHost, adminPort] = [admin.host ?? '127.0.0.1', admin.port ?? 9090]
  const wildcard = [host, adminHost].some((one) => one === '0.0.0.0' || one === '::')
  if (port === adminPort && port !== 0 && (wildcard || host === adminHost)) {
    const path = admin.port === undefined ? ['listen', 'port'] : ['admin', 'port']
    yield { path, message: `is ${port} for both "listen" and "admin"; give each its own port` }
  }
  if (listen.tls?.clientCa !== undefined && listen.tls.requestClientCert === false) {
    const message = 'contradicts "clientCa", for which everybody is asked; take one of the two out'
    yield { path: ['listen', 'tls', 'requestClientCert'], message }
  }
  const headers = durationMs(listen.headersTimeout ?? '15s')
  const request = durationMs(listen.requestTimeout ?? '60s')
  if (headers <= request) return
  if (listen.requestTimeout === undefined) {
    const message = 'must be at most requestTimeout (60s), of which it is part'
    yield { path: ['listen', 'headersTimeout'], message }
  } else {
    const message = `must be at least headersTimeout (${listen.headersTimeout ?? '15s'}), which is part of it`
    yield { path: ['listen', 'requestTimeout'], message }
  }
}
