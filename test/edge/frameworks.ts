import { words } from '../helpers/words.ts'
/** A request as a framework receives it. */
export interface Received {
  readonly method: string
  readonly target: string
  /** The value of a field, by its name in lower case. */
  field(name: string): string | undefined
}

/**
 * Returns the one parameter of a POST route of a framework, a group of `route`; undefined if the route does not match. Without
 * `route`, returns the connection that the framework would sync.
 */
export type Framework = (request: Received, route?: RegExp) => string | undefined

/** `POST /sync/:connection`, with or without a version before it. */
const SYNC = /^(?:\/[^/]+)?\/sync\/([^/]+?)\/?$/

/** Returns the path of a target, also of an absolute one, without `?` or `#` and the rest. */
const pathOf = (target: string): string =>
  /^(?:https?:\/\/[^/?#]*)?([^?#]*)/i.exec(target.startsWith('//') ? `http:${target}` : target)![1]!

const decoded = (text: string): string | undefined => {
  try {
    return decodeURIComponent(text)
  } catch {
    return undefined
  }
}

/** Decodes what it can and keeps the rest, as C programs do. */
const decodedBytes = (text: string): string =>
  text.replaceAll(/(?:%[0-9a-f]{2})+/gi, (run) => Buffer.from(run.replaceAll('%', ''), 'hex').toString())

const withoutDots = (path: string): string => {
  const kept: string[] = []
  for (const segment of path.split('/')) {
    if (segment === '..') kept.pop()
    else if (segment !== '.') kept.push(segment)
  }
  return `/${kept.filter((segment) => segment !== '').join('/')}${path.endsWith('/') ? '/' : ''}`
}

/** gunicorn reads the mount point from `SCRIPT_NAME`, mod_wsgi and a common middleware of Flask from the others. */
const wsgi = (request: Received): string => {
  const { field } = request
  const path = decodedBytes(pathOf(targetOf(request)))
  const mounted = field('script-name') ?? field('x-script-name')
  return mounted !== undefined && path.startsWith(mounted) ? path.slice(mounted.length) : path
}

/** Frameworks mostly allow only a POST to override its method; some allow any. */
const methodOf = ({ method, target, field }: Received): string =>
  (
    field('x-http-method-override') ??
    field('x-http-method') ??
    field('x-method-override') ??
    field('x-original-method') ??
    (method === 'POST' ? new URLSearchParams(target.split('?')[1] ?? '').get('_method') : null) ??
    method
  ).toUpperCase()

/** IIS modules, Symfony, Zend and servers after a rewriting proxy read the target from these fields. */
const TARGET_FIELDS = [
  ...words(`
    x-original-url x-rewrite-url x-original-uri x-override-url path-info x-path-info x-original-path
    x-replaced-path x-http-path-override x-envoy-original-path request-uri x-request-uri
  `),
]
const targetOf = ({ target, field }: Received): string =>
  TARGET_FIELDS.map(field).find((told) => told !== undefined) ?? target

const read =
  (
    pathIn: (request: Received) => string | undefined,
    idIn: (text: string) => string | undefined,
    flags = 'i',
  ): Framework =>
  (request, route = SYNC) => {
    if (methodOf(request) !== 'POST') return undefined
    const path = pathIn(request)
    const id = path === undefined ? undefined : new RegExp(route, flags).exec(path)?.[1]
    return id === undefined ? undefined : idIn(id)
  }
const asItIs = (text: string): string => text

/** `new URL(request.url, base).pathname`, as programs of Node.js, Deno and Bun read it. */
const whatwg = (target: string): string | undefined => {
  try {
    return new URL(target, 'http://localhost').pathname
  } catch {
    return undefined
  }
}

const nginx = ({ target }: Received): string => withoutDots(decodedBytes(pathOf(target)))
/** `AllowEncodedSlashes On`; a script of `ScriptAlias` or a handler gets the rest of its path as `PATH_INFO`. */
const apache = ({ target }: Received): string => {
  const path = withoutDots(decodedBytes(pathOf(target)))
  return /\.(?:php|f?cgi|pl|py|rb|wsgi|shtml|exe)(\/[^]*)/i.exec(path)?.[1] ?? path
}
const tomcat = (request: Received): string | undefined => {
  const path = decoded(pathOf(targetOf(request)).replaceAll(/;[^/]*/g, ''))
  return path === undefined ? undefined : withoutDots(path)
}
/** .NET Framework drops the segments of cookieless sessions at any position (CVE-2023-36899). */
const iis = (request: Received): string =>
  withoutDots(
    decodedBytes(pathOf(targetOf(request)))
      .replaceAll('\\', '/')
      .replaceAll(/\((?:[A-Z]\([^)]*\))+\)/gi, ''),
  )

/** Rails' `(.:format)`, for the formats that it knows. */
const rails = ({ target }: Received): string =>
  decodedBytes(pathOf(target)).replace(
    /(?<=[^/])\.(?:json|xml|x?html|htm|js|csv|txt|text|ya?ml|rss|atom|pdf|zip|png)\/?$/i,
    '',
  )

/** Symfony and Laravel start after the front controller; if nothing is left below its folder, CodeIgniter uses the query. */
const php = (request: Received): string => {
  const target = targetOf(request)
  const path = decodedBytes(pathOf(target)).replace(/^.*?\.php(?=\/|$)/i, '')
  const mark = target.indexOf('?')
  const query = mark === -1 ? '' : target.slice(mark + 1)
  return !/\/sync\//i.test(path) && query.startsWith('/') ? query.split('?', 1)[0]! : path
}

/** Models of frameworks that parse a request after the gateway, each with its laxest settings. */
export const FRAMEWORKS: Readonly<Record<string, Framework>> = {
  express: read(({ target }) => pathOf(target), decoded),
  koa: read(
    ({ target }) => pathOf(target),
    (id) => decoded(id) ?? id,
  ),
  // `ignoreDuplicateSlashes`, `useSemicolonDelimiter`, `ignoreTrailingSlash`, `caseSensitive: false`
  fastify: read(
    ({ target }) =>
      decodedBytes(
        pathOf(target.split(';', 1)[0]!)
          .replaceAll(/\/{2,}/g, '/')
          .replaceAll(/%(?=2[35f])/gi, '%25'),
      ),
    (id) => decoded(id) ?? id,
  ),
  'new URL': read(({ target }) => whatwg(target), decoded),
  'Spring on Tomcat': read(tomcat, asItIs),
  'ASP.NET': read((request) => withoutDots(decodedBytes(pathOf(targetOf(request)))), asItIs),
  'ASP.NET behind IIS': read(iis, asItIs),
  'express behind nginx': read(nginx, asItIs),
  'a program behind Apache': read(apache, asItIs),
  // nginx: `proxy_pass http://backend$uri`; Apache before 2.4.60: a `RewriteRule` to a proxy.
  'Express behind a proxy that decodes': read((request) => pathOf(nginx(request)), asItIs),
  'something that decodes twice': read((request) => withoutDots(decodedBytes(nginx(request))), asItIs),
  WSGI: read(wsgi, asItIs),
  // As Python compares under `(?i)`: ſ is s.
  'WSGI without regard to case': read(wsgi, asItIs, 'iu'),
  PHP: read(php, asItIs),
  Rails: read(rails, asItIs),
  'a strict one': read(({ target }) => pathOf(target), decoded, ''),
}

const database = new Intl.Collator('en', { sensitivity: 'base' })
const seen = (id: string): string =>
  (decoded(id) ?? id)
    .normalize('NFKC')
    .replaceAll(/\p{Default_Ignorable_Code_Point}/gu, '')
    .trim()

/** True if a database might compare these ids as equal: ignoring case, form, accents, and blanks at the ends. */
export const sameInDatabases = (one: string, other: string): boolean => {
  const [a, b] = [seen(one), seen(other)]
  return a.toUpperCase().toLowerCase() === b.toUpperCase().toLowerCase() || database.compare(a, b) === 0
}
