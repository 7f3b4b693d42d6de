import { createQualifier } from '../authenticate/token/bearer.ts'
import { readKeySet } from '../authenticate/token/key-set.ts'
import { isGuarded } from '../downstream/router.ts'
import type { ClientLimit } from '../limit/limit.ts'
import { foldClientId } from '../par/clients.ts'
import { createFileReader } from './files.ts'
import type { Compiled, Settings, StoreConfig, Tokens } from './schema.ts'
import { httpUrl } from './sections/addresses.ts'
import type { Issue } from './yaml/issue.ts'

/** Converts settings to the types that the gateway uses. Adds mistakes in the files that they name to `mistakes`. */
export async function compile(settings: Settings, directory: string, mistakes: Issue[]): Promise<Compiled> {
  const { upstreams, listen, tokens, routes, limits, par } = settings
  const files = createFileReader(directory, mistakes)
  const pushedTo = new Set(
    routes.flatMap(({ authenticate, upstream }) => (authenticate === 'par' ? [upstream] : [])),
  )
  const issuers = [tokens ?? []].flat()
  const qualify = createQualifier(issuers.map(({ issuer }) => issuer))
  const clientLimits = new Map<string, ReadonlyMap<string, ClientLimit>>()

  async function compileStore(store: Settings['store']): Promise<StoreConfig> {
    if (store === 'memory') return store
    const { tls } = store.redis
    const read = tls === true ? {} : tls && (await files.tls(tls, ['store', 'redis', 'tls']))
    return { ...store, redis: { ...store.redis, tls: read } }
  }

  async function keysOf(jwks: string | undefined, i: number): Promise<Tokens['jwks']> {
    if (jwks === undefined) return undefined
    const path = Array.isArray(tokens) ? ['tokens', i, 'jwks'] : ['tokens', 'jwks']
    return httpUrl(jwks) ? { url: jwks } : { file: await files.keySet(jwks, path) }
  }

  return {
    ...settings,
    listen: {
      ...listen,
      hosts: listen.hosts ?? [...new Set(routes.flatMap(({ host }) => host ?? []))],
      tls: listen.tls && {
        ...(await files.tls(listen.tls, ['listen', 'tls'])),
        requestClientCert: listen.tls.requestClientCert ?? false,
      },
    },
    store: await compileStore(settings.store),
    upstreams: await Promise.all(
      upstreams.map(async ({ tls, ...rest }) => ({
        ...rest,
        errors: rest.errors ?? (pushedTo.has(rest.name) ? 'oauth' : 'problem'),
        tls: tls && { servername: undefined, ...(await files.tls(tls, ['upstreams', rest.name, 'tls'])) },
      })),
    ),
    tokens: await Promise.all(
      issuers.map(async (issuer, i) => ({ ...issuer, jwks: await keysOf(issuer.jwks, i) })),
    ),
    clients: await Promise.all(
      settings.clients.map(async ({ limits: own, jwks, jwksUri, ...client }, i) => {
        const caller = qualify(client.id, client.issuer)
        if (Object.keys(own).length > 0) clientLimits.set(caller, new Map(Object.entries(own)))
        const message = jwks && (await keyIssue(client.requestObjectSigningAlg, jwks))
        if (message !== undefined) mistakes.push({ path: ['clients', i, 'jwks', 'keys'], message })
        const location = jwksUri === undefined ? undefined : { url: jwksUri }
        return { ...client, caller, folded: foldClientId(client.id), jwks: jwks ?? location }
      }),
    ),
    clientLimits,
    routes: routes.map((route) => ({
      ...route,
      hosts: route.host === undefined ? listen.hosts : undefined,
      maxBody: isGuarded(route) ? par!.maxBody : route.maxBody,
      limits: route.limits.map((name) => limits.find((limit) => limit.name === name)!),
    })),
  }
}

/** Returns why a client that signs with `algorithm` cannot use its keys. */
async function keyIssue(algorithm = 'none', jwks: object): Promise<string | undefined> {
  const keys = await readKeySet(jwks).catch(() => undefined)
  const isSigned = algorithm !== 'none' && !algorithm.startsWith('HS')
  const usable = isSigned ? keys?.find(algorithm, undefined) : keys?.keys
  if (usable !== undefined && usable.length > 0) return undefined
  return `contain no key that verifies ${isSigned ? algorithm : 'signatures'}; write a public key: RSA of 2048 to 4096 bits with an exponent of at most 64, P-256, P-384 or Ed25519`
}
