import { describe, expect, it } from 'vitest'
import { completed, mistakesIn, type Row } from './load-text.ts'

const ENV = { EMPTY: '', WORD: 'word', BIG: '99999', LIST: '[a, b]' }

const MISTAKES: readonly Row[] = [
  [
    'a variable that is not set',
    'listen: { port: "${PORT}" }',
    [
      '1:17: listen.port: needs the environment variable PORT, which is not set; set it or write ${PORT:-default}',
    ],
  ],
  [
    'variables that are empty, malformed, unended or nested',
    [
      'listen: { host: "${EMPTY}" }',
      'admin: { host: "${1X}", port: "${PORT" }',
      'log: { level: "${A:-${B}}", format: "${}" }',
    ],
    [
      '1:17: listen.host: needs the environment variable EMPTY, which is empty; set it or write ${EMPTY:-default}',
      '2:16: admin.host: has a "${" that names no variable; write ${NAME} or ${NAME:-default}',
      '2:31: admin.port: has a "${" that no "}" ends; write ${NAME}, or $${ for a plain "${"',
      '3:15: log.level: has a variable within the default of ${A}; write a plain one',
      '3:37: log.format: has a "${" that names no variable; write ${NAME} or ${NAME:-default}',
    ],
  ],
  [
    'values of the environment out of range',
    ['listen: { port: "${WORD}" }', 'admin: { port: "${BIG}" }'],
    [
      '1:17: listen.port: must be a port from 0 to 65535, not "word"',
      '2:16: admin.port: must be a port from 0 to 65535, not 99999',
    ],
  ],
  [
    'a variable that would change the structure',
    'listen: { hosts: "${LIST}" }',
    ['1:18: listen.hosts: must be a list of host names, in [ ] or with a "- " before each'],
  ],
  [
    'a secret whose file does not exist',
    'store: { redis: { url: file:/nowhere/redis-url } }',
    ['1:24: store.redis.url: is to be read from /nowhere/redis-url, which does not exist'],
  ],
  [
    'a secret whose file is a directory',
    'store: { redis: { url: file:. } }',
    ['1:24: store.redis.url: is to be read from ., which is a directory, not a file'],
  ],
  [
    'keys that stand twice',
    ['listen: { port: 1, port: 2 }', 'admin: {}', 'admin: {}'],
    [
      '1:20: listen.port: stands here again, first in line 1; take one of the two out',
      '3:1: admin: stands here again, first in line 2; take one of the two out',
    ],
  ],
  [
    'a key named __proto__',
    ['upstreams:', '  data: { url: http://data.internal:4000 }', '  __proto__: { url: http://x }'],
    ['3:3: upstreams.__proto__: unknown key; take it out'],
  ],
  [
    'names that every object has',
    ['routes:', '  - { match: "/*", upstream: constructor, authenticate: bearer, limits: [toString] }'],
    [
      '2:30: routes[0].upstream: there is no upstream "constructor"; define it under "upstreams" or write data',
      '2:74: routes[0].limits[0]: there is no limit "toString"; define it under "limits" or write requests or sync',
    ],
  ],
  ['a key that is a list', ['? [a, b]', ': c'], ['1:3: holds a key that is not a word; write a plain one']],
  ['a tag', 'log: !custom { level: info }', ['1:6: a tag (!name) means nothing here; take it out']],
  [
    'words that only YAML 1.1 understands',
    ['%YAML 1.1', '---', 'log: { level: off }', 'drainTimeout: 1:30'],
    [
      '3:15: log.level: must be fatal, error, warn, info, debug, trace or silent, not "off"',
      '4:15: drainTimeout: must be a duration from 0s to 1h (units ms, s, m, h, d), not "1:30"',
    ],
  ],
  [
    'a tab as indentation',
    ['store: memory', 'listen:', '\tport: 1'],
    ['3:1: a tab indents this line; YAML takes spaces alone'],
    'whole',
  ],
  [
    'a variable without quotes in a flow mapping',
    'store: { redis: { url: ${REDIS_URL} } }',
    ['1:25: Unexpected flow-map-start at node end; within { } and [ ], put quotes around "${NAME}"'],
    'whole',
  ],
  [
    'a bracket that is not closed',
    ['listen: { port: 1', 'store: memory'],
    ['2:1: Flow map in block collection must be sufficiently indented and end with a }'],
    'whole',
  ],
  [
    'wrong indentation',
    ['listen:', '  port: 1', ' host: a'],
    ['3:1: All mapping items must start at the same column'],
    'whole',
  ],
  [
    'two documents',
    ['store: memory', '---', 'store: memory'],
    ['2:1: a second document starts here; a configuration is one document, so take the "---" out'],
    'whole',
  ],
  ['an empty file', '', ['1:1: the file is empty; config/sluice.yaml shows what to write'], 'whole'],
  [
    'a file of comments',
    '# nothing yet',
    ['1:1: the file is empty; config/sluice.yaml shows what to write'],
    'whole',
  ],
  [
    'a file that is null',
    'null',
    ['1:1: the file must be a mapping; config/sluice.yaml shows its keys'],
    'whole',
  ],
  [
    'a file that is a text',
    'hello',
    ['1:1: the file must be a mapping; config/sluice.yaml shows its keys'],
    'whole',
  ],
  [
    'a file that is a list',
    '- a',
    ['1:1: the file must be a mapping; config/sluice.yaml shows its keys'],
    'whole',
  ],
  [
    'a file without anything required',
    '{}',
    [
      '1:1: store: is missing; write "memory" or a mapping with "redis"',
      '1:1: upstreams: is missing; write a mapping of names to upstreams',
      '1:1: routes: is missing; write a list of routes',
    ],
    'whole',
  ],
  [
    'an alias without anchor',
    'store: *none',
    [
      '1:8: store: stands for nothing, since no "&" gives it a name; put a text that begins with "*" in quotes',
    ],
    'whole',
  ],
  [
    'an alias within itself',
    'store: &a { redis: *a }',
    ['1:1: the file cannot be read: an alias (*name) stands within what it stands for'],
    'whole',
  ],
  [
    'aliases that multiply',
    [
      'a: &a [x, x, x, x, x, x, x, x, x, x]',
      'b: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]',
      'c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b]',
      'd: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c, *c]',
    ],
    ['1:1: the aliases (*name) multiply the file beyond bounds; write the values out'],
    'whole',
  ],
  [
    'a mistake merged into another mapping, where it stands',
    [
      'upstreams:',
      '  identity: &u { url: http://identity.internal, timeout: 5 }',
      '  data: { <<: *u, url: http://data.internal:4000 }',
    ],
    [
      '2:58: upstreams.identity.timeout: has no unit; write 5ms or 5s',
      '2:58: upstreams.data.timeout: has no unit; write 5ms or 5s',
    ],
  ],
  [
    'a merge of a word',
    ['upstreams:', '  data: { <<: 5, url: http://data.internal:4000 }'],
    ['1:1: the file cannot be read: Merge sources must be maps or map aliases'],
  ],
]

describe('mistakes in the document and the environment', () => {
  it.for(MISTAKES)('names %s', async ([, snippet, lines, whole]) => {
    const text = typeof snippet === 'string' ? snippet : snippet.join('\n')
    const mistakes = await mistakesIn(whole ? text : completed(text), ENV)
    expect(mistakes).toEqual(lines.map((line) => `sluice.yaml:${line}`))
  })
})
