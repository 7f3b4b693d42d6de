/** A value that beats the file's, and the flag that gave it. */
export interface Override {
  readonly flag: string
  readonly path: readonly string[]
  readonly value: string
}

/** The flags that beat the file. Their texts go through the schema like the file's. */
export const FLAGS: Readonly<Record<string, Pick<Override, 'path'> & { readonly describe: string }>> = {
  host: { path: ['listen', 'host'], describe: 'address that callers connect to' },
  port: { path: ['listen', 'port'], describe: 'port that callers connect to; 0 takes a free one' },
  'admin-host': { path: ['admin', 'host'], describe: 'address of the admin listener' },
  'admin-port': { path: ['admin', 'port'], describe: 'port of the admin listener' },
  store: { path: ['store'], describe: '"memory" counts in this process alone' },
  redis: {
    path: ['store', 'redis', 'url'],
    describe:
      'URL of the Redis that counts; credentials and TLS stay the file’s, unless the URL brings its own',
  },
  'log-level': { path: ['log', 'level'], describe: 'fatal, error, warn, info, debug, trace or silent' },
  'log-format': { path: ['log', 'format'], describe: 'json or pretty' },
}

/** The overrides that parsed flags ask for; flags that were not given are undefined. */
export function overridesOf(given: Readonly<Record<string, unknown>>): readonly Override[] {
  return Object.entries(FLAGS).flatMap(([name, { path }]) => {
    const value = given[name]
    return typeof value === 'string' ? [{ flag: `--${name}`, path, value }] : []
  })
}
