import { isIP } from 'node:net'
import type { Settings } from './schema.ts'
import { type Issue, issueAt } from './yaml/issue.ts'

/** Last labels of file names. They are not top-level domains. */
const FILE_ENDINGS: ReadonlySet<string> = new Set(
  'asp aspx cfm cgi css csv gif htm html ico jpeg jpg js json jsp pdf php png svg txt xml yaml yml'.split(
    ' ',
  ),
)

/** Matches a top-level domain, or the last label of a private name such as `db.internal`: no digits (RFC 3696 section 2). */
const LAST_LABEL = /^(?:[a-z]{2,}|xn--[a-z0-9-]+)$/

/** Matches the methods and the host of a pattern. */
const WRITTEN = /^((?:[A-Za-z,-]+ +)?)([^/]*)/

/** Matches names such as `chat.postMessage`, which are paths of APIs, and no hosts. */
const CAMEL_CASE = /[a-z][A-Z]/

/**
 * Yields routes whose host is probably the first segment of a path without its slash. Such a route
 * would never match, and another route would serve its requests without its limits.
 */
export function* routeHostIssues({ listen, routes }: Settings): Generator<Issue> {
  for (const [i, { match, host }] of routes.entries()) {
    if (host === undefined || listen.hosts?.includes(host) === true) continue
    const [, methods = '', named] = WRITTEN.exec(match)!
    if (isSurelyHost(host) && !CAMEL_CASE.test(named!)) continue
    const path = `${methods}/${match.slice(methods.length)}`
    yield issueAt(
      ['routes', i, 'match'],
      `is a route for the host "${host}"; write the path as "${path}", or list the host in listen.hosts`,
    )
  }
}

/** True for addresses, for `localhost`, and for names whose last label can be a top-level domain. */
function isSurelyHost(host: string): boolean {
  if (host === 'localhost' || isIP(host.replace(/^\[|\]$/g, '')) !== 0) return true
  const labels = host.split('.')
  const last = labels.at(-1)!
  return labels.length > 1 && LAST_LABEL.test(last) && !FILE_ENDINGS.has(last)
}
