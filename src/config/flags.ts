import type { Override } from './load.ts'

interface Flag {
  readonly path: readonly string[]
  readonly describe: string
  /** The keys beside the value that do not go with the flag's text. */
  readonly replaces?: (text: string) => readonly string[]
  /** True if the value is a URL that takes over user, password and TLS of the file's, unless it has a user of its own. */
  readonly keepsUser?: boolean
}

/** The flags that beat the file: name → the value's place. Their texts go through the schema like the file's. */
export const FLAGS: Readonly<Record<string, Flag>> = {
  host: { path: ['listen', 'host'], describe: 'address that callers connect to' },
  port: { path: ['listen', 'port'], describe: 'port that callers connect to; 0 takes a free one' },
  'admin-host': { path: ['admin', 'host'], describe: 'address of the admin listener' },
  'admin-port': { path: ['admin', 'port'], describe: 'port of the admin listener' },
  store: { path: ['store'], describe: '"memory" counts in this process alone' },
  redis: {
    path: ['store', 'redis', 'url'],
    describe:
      'URL of the Redis that counts; credentials and TLS stay the file’s, unless the URL brings its own',
    replaces: (url) => [
      ...['cluster', 'sentinels', 'name', 'sentinelUsername', 'sentinelPassword'],
      ...(url.includes('@') ? ['username', 'password'] : []),
      ...(url.startsWith('redis') ? [] : ['tls']),
    ],
    keepsUser: true,
  },
  'log-level': { path: ['log', 'level'], describe: 'fatal, error, warn, info, debug, trace or silent' },
  'log-format': { path: ['log', 'format'], describe: 'json or pretty' },
}

/** The overrides that parsed flags ask for; flags that were not given are undefined. */
export function overridesOf(given: Readonly<Record<string, unknown>>): readonly Override[] {
  return Object.entries(FLAGS).flatMap(([name, { path, replaces, keepsUser }]) => {
    const value = given[name]
    if (typeof value !== 'string') return []
    return [{ flag: `--${name}`, path, value, replaces: replaces?.(value) ?? [], keepsUser }]
  })
}
