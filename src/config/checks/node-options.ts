import type { LocatedIssue } from '../yaml/issue.ts'
import type { Env } from '../yaml/source.ts'

/** Options of Node.js that weaken the gateway, and the effect of each. */
const OPTIONS: Readonly<Record<string, string>> = {
  '--insecure-http-parser': 'accepts malformed HTTP; callers and upstreams are still parsed strictly',
  '--security-revert': 'undoes a security fix of Node.js',
  '--tls-min-v1.0': 'allows TLS 1.0 to issuers, Redis and the trace receiver',
  '--tls-min-v1.1': 'allows TLS 1.1 to issuers, Redis and the trace receiver',
  '--inspect': 'opens a debugger port, through which anybody who reaches it runs code here',
}

/** Warns of Node.js options and variables that weaken the gateway, on the command line or in the environment. */
export function* nodeWarnings(
  env: Env,
  execArgv: readonly string[] = process.execArgv,
): Generator<LocatedIssue> {
  const words = [...execArgv, ...(env['NODE_OPTIONS'] ?? '').split(/\s+/)]
  for (const [option, effect] of Object.entries(OPTIONS)) {
    const isSet = words.some(
      (word) => word.replaceAll('_', '-').replace(/=.*$|(?<=^--inspect).*$/, '') === option,
    )
    if (isSet) yield { where: 'Node.js', path: option, message: `${effect}; remove it` }
  }
  if (env['NODE_TLS_REJECT_UNAUTHORIZED'] !== '0') return
  const message = 'trusts any server that answers for an issuer or the trace receiver; remove it'
  yield { where: 'Node.js', path: 'NODE_TLS_REJECT_UNAUTHORIZED', message }
}
