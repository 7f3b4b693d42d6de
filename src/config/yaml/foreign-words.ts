/** The words of other gateways for what a section says otherwise; `of` is a key by which the section is known. */
const FOREIGN: readonly { readonly of: string; readonly word: RegExp; readonly meant: string }[] = [
  {
    of: 'window',
    word: /^(?:second|minute|hour|day|month|year)s?$/i,
    meant: 'write the number and its time as two keys, such as limit: 100, window: 1m',
  },
  {
    of: 'window',
    word: /^(?:limit_?by|key_?generator|key_?type|identifier)$/i,
    meant: 'whom a limit counts is "per", such as [client] or [ip]',
  },
  {
    of: 'window',
    word: /^(?:window_?ms|interval|period|time_?window)$/i,
    meant: 'write "window", such as 1m',
  },
  {
    of: 'match',
    word: /^(?:methods?|paths?|uris?|location|prefix)$/i,
    meant: 'write the method and the path in "match", such as "GET /orders/*"',
  },
  {
    of: 'match',
    word: /^strip_?(?:path|prefix)$/i,
    meant: 'remove it; the upstream gets the path as the caller sends it',
  },
  {
    of: 'routes',
    word: /^(?:_format_version|services|consumers|plugins)$/,
    meant: 'this is a word of Kong; docs/migrating/from-kong.md translates its files',
  },
]

/** Returns what to write in place of a word of another gateway, in a section with these keys; undefined if it is none. */
export const foreignWord = (key: string, keys: readonly string[]): string | undefined =>
  FOREIGN.find(({ of, word }) => keys.includes(of) && word.test(key))?.meant
