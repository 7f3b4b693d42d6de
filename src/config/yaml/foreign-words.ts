/** The words of other gateways for what a section says otherwise; `of` are keys by which sections are known. */
const FOREIGN: readonly { readonly of: readonly string[]; readonly word: RegExp; readonly meant: string }[] =
  [
    {
      of: ['window', 'match'],
      word: /^(?:second|minute|hour|day|month|year)s?$/i,
      meant: 'write a limit with two keys, such as requests: { per: [client], limit: 100, window: 1m }',
    },
    {
      of: ['window', 'match', 'routes'],
      word: /^(?:limit_?by|key_?generator|key_?type|identifier)$/i,
      meant: 'whom a limit counts is its "per", such as [client] or [ip]',
    },
    {
      of: ['window'],
      word: /^(?:window_?ms|interval|period|time_?window)$/i,
      meant: 'write "window", such as 1m',
    },
    {
      of: ['window'],
      word: /^(?:rate|burst)$/i,
      meant: 'docs/migrating/from-nginx.md translates rates and bursts to a limit and a window',
    },
    {
      of: ['match', 'routes'],
      word: /^(?:methods?|paths?|uris?|locations?|prefix)$/i,
      meant: 'write the method and the path in "match" of a route, such as "GET /orders/*"',
    },
    {
      of: ['match'],
      word: /^strip_?(?:path|prefix)$/i,
      meant: 'remove it; the upstream gets the path as the caller sends it',
    },
    {
      of: ['routes'],
      word: /^(?:_format_version|services|consumers|plugins)$/,
      meant: 'this is a word of Kong; docs/migrating/from-kong.md translates its files',
    },
  ]

/** Returns what to write in place of a word of another gateway, in a section with these keys; undefined if it is none. */
export const foreignWord = (key: string, keys: readonly string[]): string | undefined =>
  FOREIGN.find(({ of, word }) => word.test(key) && of.some((own) => keys.includes(own)))?.meant

/** The parts of `per`, by the words of other gateways for them. */
const FOREIGN_PARTS: ReadonlyMap<string, string> = new Map([['consumer', 'client']])

/** Returns the part of `per` that a word of another gateway means; undefined if it is none. */
export const foreignPart = (part: string): string | undefined => FOREIGN_PARTS.get(part)
