import { isCallerField, normalizeFieldName } from '../downstream/request-fields.ts'
import { fieldsOf } from '../policy/conditions.ts'
import { nameIn, wordOf } from '../policy/words.ts'
import type { Settings } from './schema.ts'
import { type Issue, issueAt, issueAtKey } from './yaml/issue.ts'

/** Yields header fields that have two meanings in a file, or that a limit reads and an upstream does not get. */
export function* fieldIssues(settings: Settings): Generator<Issue> {
  yield* requestIdIssues(settings)
  yield* spellingIssues(settings)
  yield* callerFieldIssues(settings)
  yield* certificateIssues(settings)
  yield* keyFieldIssues(settings)
}

const IS_REQUEST_ID = 'is the field of the request id (headers.requestId); remove it'

function* requestIdIssues({ headers, limits, upstreams }: Settings): Generator<Issue> {
  const isId = (name: string): boolean =>
    normalizeFieldName(name.toLowerCase()) === normalizeFieldName(headers.requestId.toLowerCase())
  for (const { name, refusal } of limits)
    for (const field of Object.keys(refusal?.headers ?? {}).filter(isId))
      yield issueAtKey(['limits', name, 'refusal', 'headers', field], IS_REQUEST_ID)
  for (const { name, identityHeaders, callerHeaders } of upstreams)
    for (const [key, fields] of Object.entries({ identityHeaders, callerHeaders }))
      for (const [i, field] of fields.entries())
        if (isId(field)) yield issueAt(['upstreams', name, key, i], IS_REQUEST_ID)
}

/** Yields other meanings of the field of API keys: a limit would show keys, an upstream would get them. */
function* keyFieldIssues({ keys, headers, limits, upstreams }: Settings): Generator<Issue> {
  if (keys === undefined) return
  const spelling = normalizeFieldName(keys.field.toLowerCase())
  const isKey = (field: string): boolean => normalizeFieldName(field.toLowerCase()) === spelling
  if (isKey(headers.requestId))
    yield issueAt(['keys', 'field'], IS_REQUEST_ID.replace('remove it', 'name another'))
  for (const { name, per, when = [], unless = [] } of limits) {
    const part = per.findIndex((word) => wordOf(word).word === 'header' && isKey(nameIn(word)))
    if (part !== -1)
      yield issueAt(['limits', name, 'per', part], 'is the field of API keys (keys.field); write client')
    if ([...when, ...unless].some(({ of, name, is }) => of === 'header' && isKey(name) && Array.isArray(is)))
      yield issueAtKey(['limits', name], 'compares the field of API keys (keys.field); remove that condition')
  }
  for (const { name, identityHeaders, callerHeaders } of upstreams)
    for (const [key, fields] of Object.entries({ identityHeaders, callerHeaders }))
      for (const [i, field] of fields.entries())
        if (isKey(field))
          yield issueAt(
            ['upstreams', name, key, i],
            'is the field of API keys; remove it, or write keys.forward',
          )
}

/** Yields a field of certificates that no proxy may send, or that has another meaning. */
function* certificateIssues({ listen, forwardAuth, limits, upstreams }: Settings): Generator<Issue> {
  const field = listen.clientCertificate.toLowerCase()
  const path = ['listen', 'clientCertificate']
  if (field === 'client-cert') return
  if (listen.trustedProxies.length === 0 && forwardAuth === undefined)
    yield issueAt(path, 'is believed from listen.trustedProxies only; list them, or remove it')
  const isCallers = upstreams.some(({ callerHeaders }) =>
    callerHeaders.some((one) => one.toLowerCase() === field),
  )
  if (isCallers || fieldsOf(limits).includes(field))
    yield issueAt(path, 'is a field of callers in this file, too; name another')
}

/** Yields fields of callers that a limit reads, and that the upstream of one of its routes does not get. */
function* callerFieldIssues({ limits, routes, upstreams }: Settings): Generator<Issue> {
  const readers = new Set(
    routes.flatMap((route) => route.limits.map((limit) => JSON.stringify([route.upstream, limit]))),
  )
  for (const limit of limits)
    for (const field of fieldsOf([limit]).filter(isCallerField))
      for (const { name, callerHeaders, identityHeaders } of upstreams) {
        const isRead = readers.has(JSON.stringify([name, limit.name]))
        const accepted = [...callerHeaders, ...identityHeaders].map((one) => one.toLowerCase())
        if (!isRead || accepted.includes(field)) continue
        yield issueAtKey(
          ['limits', limit.name],
          `reads ${field}, which callers may send to "${name}" only with upstreams.${name}.callerHeaders: [${field}]`,
        )
      }
}

/**
 * Yields fields that are another spelling of an earlier one: the gateway drops all spellings of a
 * field but one.
 */
function* spellingIssues({ limits, upstreams }: Settings): Generator<Issue> {
  const places = [
    ...limits.map((limit) => ({ path: ['limits', limit.name], fields: fieldsOf([limit]) })),
    ...upstreams.map(({ name, identityHeaders, callerHeaders }) => ({
      path: ['upstreams', name],
      fields: [...identityHeaders, ...callerHeaders],
    })),
  ]
  const spellings = new Map<string, string>()
  for (const { path, fields } of places)
    for (const field of fields.map((name) => name.toLowerCase())) {
      const normalized = normalizeFieldName(field)
      const first = spellings.get(normalized) ?? field
      spellings.set(normalized, first)
      if (first !== field)
        yield issueAtKey(path, `names ${field}, another spelling of ${first}; write the same name in both`)
    }
}
