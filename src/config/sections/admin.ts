import { z } from 'zod'
import { isLoopback } from '../../runtime/address.ts'
import { type Issue, issueAt, issueAtKey, mustBe, type Path } from '../yaml/issue.ts'
import { serverTls, serverTlsIssues } from './server-tls.ts'
import { bindHost, servedHost } from './texts.ts'
import { choice, distinct, exclusive, list, port, section, stringThat, text } from './values.ts'

const isToken = (text: string): boolean => /^[A-Za-z0-9._~+/-]{16,}=*$/.test(text)
const token = stringThat(isToken, '16 or more letters, digits and - . _ ~ + /, = only at its end')

/** The names that the gateway writes for operators without a name: see `src/admin/access.ts`. */
const RESERVED = new Set(['admin.token', 'loopback'])

const operatorName = stringThat((name) => {
  if (RESERVED.has(name)) return 'is written for operators without a name; write another'
  return /^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$/.test(name)
}, 'a name of letters, digits and . _ @ - (64 characters at most), such as support')

/** Matches names of attributes with their values, in which a comma has a backslash before it. */
const SUBJECT = /^[A-Za-z0-9.]+=(?:[^,\\]|\\.)+(?:,[A-Za-z0-9.]+=(?:[^,\\]|\\.)+)*$/
const subject = stringThat(
  (text) => SUBJECT.test(text),
  'a subject such as CN=support,O=Example, as "openssl x509 -noout -subject -nameopt RFC2253" prints it',
).transform(withoutEscapedUtf8)

/** Replaces the escaped bytes of letters such as ü, which OpenSSL prints as \C3\BC, by the letters. */
function withoutEscapedUtf8(subject: string): string {
  return subject.replaceAll(/(?:\\[89A-F][0-9A-F])+/gi, (escapes) =>
    Buffer.from(escapes.replaceAll('\\', ''), 'hex').toString(),
  )
}

const RIGHTS = 'read, set, or a list of the limits that it may change, such as [requests]'
const may = z.union(
  [choice(['read', 'set']), distinct(text('the name of a limit'), 1, RIGHTS)],
  mustBe(RIGHTS),
)

const operator = section(
  { name: operatorName, token: token.optional(), subject: subject.optional(), may },
  function* (operator) {
    yield* exclusive(operator, ['token', 'subject'])
    if (operator.token === undefined && operator.subject === undefined)
      yield issueAt([], 'must have "token", or the "subject" of a client certificate')
  },
)

const tls = section(serverTls, serverTlsIssues)

export const admin = section(
  {
    host: bindHost.default('127.0.0.1'),
    port: port.prefault(9090),
    tls: tls.optional(),
    token: token.optional(),
    tokens: list(operator, 1, 'a list of operators').default([]),
    hosts: list(servedHost, 1, 'a list of host names').default([]),
  },
  function* ({ tls, token, tokens }) {
    yield* duplicates(tokens, token)
    const hasSubject = tokens.some(({ subject }) => subject !== undefined)
    if (tls?.clientCa !== undefined && !hasSubject)
      yield issueAtKey(
        ['tls', 'clientCa'],
        'identifies no operator: no entry of admin.tokens has a "subject"; write one, or remove it',
      )
    for (const [i, { subject }] of tokens.entries())
      if (subject !== undefined && tls?.clientCa === undefined)
        yield issueAtKey(
          ['tokens', i, 'subject'],
          'needs admin.tls.clientCa: the authorities of the operators’ certificates',
        )
  },
).transform((given) => ({ token: undefined, tls: undefined, ...given, onLoopback: isLoopback(given.host) }))

type Operators = readonly z.output<typeof operator>[]

/** Yields names, tokens and subjects that several operators have, without the tokens themselves. */
function* duplicates(operators: Operators, shared: string | undefined): Generator<Issue> {
  for (const [i, { name, token, subject }] of operators.entries()) {
    const path: Path = ['tokens', i]
    const earlier = operators.slice(0, i)
    const holder = earlier.find((other) => token !== undefined && other.token === token)
    if (earlier.some((other) => other.name === name))
      yield issueAt([...path, 'name'], 'is a duplicate; give each operator its own name')
    if (token !== undefined && token === shared)
      yield issueAt([...path, 'token'], 'is also admin.token; give each its own')
    else if (holder !== undefined)
      yield issueAt([...path, 'token'], `is also the token of "${holder.name}"; give each its own`)
    if (subject !== undefined && earlier.some((other) => other.subject === subject))
      yield issueAt([...path, 'subject'], 'is a duplicate; give each operator its own certificate')
  }
}
