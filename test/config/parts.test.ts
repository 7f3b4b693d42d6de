import { describe, expect, it } from 'vitest'
import { findOffset, parseYaml, valueOf } from '../../src/config/yaml/document.ts'
import { readParts } from '../../src/config/yaml/parts.ts'
import { completed, mistakesIn } from './load-text.ts'

const COUNT = 300
/** Returns a file of several parts: with hundreds of clients, each written so, before and after other sections. */
const fileOf = (item: (i: number) => string, after = 'drainTimeout: 5s\n'): string =>
  `store: memory\nclients: # many\n\n${Array.from({ length: COUNT }, (_, i) => item(i)).join('')}${after}`

const long = 'x'.repeat(800)
const flow = (i: number): string =>
  `  - { id: client-${i}, limits: { requests: { limit: ${i} } } } # ${long}\n`

const LAYOUTS = {
  'in flow style': fileOf(flow),
  'without indentation': fileOf((i) => `- id: client-${i}\n  scopes:\n  - a\n  - b # ${long}\n`),
  'with blank lines and comments between': fileOf((i) => `    - id: c${i}\n\n# - ${long}\n      n: ${i}\n`),
  'with texts of several lines': fileOf((i) => `  - id: c${i}\n    a: |\n      - ${long}\n\n      b: c\n`),
  'with quoted texts of several lines': fileOf((i) => `  - id: "c${i}\n\n      - ${long}"\n`),
  'at the end, without a line break': fileOf(flow, '').trimEnd(),
  'with line ends of Windows': fileOf(flow).replaceAll('\n', '\r\n'),
  'with line separators of Unicode in comments': fileOf((i) => `  - { id: c${i} } # ${long}\u2028a: b\n`),
  'with anchors of their own': fileOf((i) => `  - { id: c${i}, a: &a [${long}], b: *a }\n`),
  'with keys that are merged in': fileOf((i) => `  - { id: c${i}, a: &a { x: ${long} }, <<: *a }\n`),
}

describe('a long list of clients', () => {
  it.each(Object.entries(LAYOUTS))('is read in parts as at once, %s', (_, text) => {
    const whole = parseYaml(text)
    const parts = readParts(text)
    expect(parts?.value).toEqual(valueOf(whole))
    for (const path of [
      ...[['clients', 0, 'id'], ['clients', 123], ['clients', COUNT - 1, 'id'], ['store'], ['clients']],
      ...[['drainTimeout'], ['clients', 170, 'limits', 'requests', 'limit'], ['nothing']],
    ])
      for (const key of [true, false])
        expect(parts!.offsetOf({ path, message: '', key })).toBe(
          findOffset(whole, { path, message: '', key }),
        )
  })

  it.each([
    ['short', fileOf(flow).slice(0, 5000)],
    [
      'with an alias of another section',
      `a: &a {}\n${fileOf((i) => `  - { id: c${i}, limits: *a } # ${long}\n`)}`,
    ],
    ['whose anchors others use', fileOf((i) => `  - { id: c${i}, a: &a [${long}] }\n`, 'b: *a\n')],
    ['twice', fileOf(flow) + fileOf(flow)],
    ['with a second document', fileOf(flow, `---\n${fileOf(flow)}`)],
    ['in a text', `a: |\n  ${fileOf(flow).replaceAll('\n', '\n  ')}`],
    ['with a quote that is not closed', fileOf((i) => (i === 150 ? `  - { id: "c }\n` : flow(i)))],
    ['with another indentation', fileOf((i) => (i === 150 ? ` ${flow(i)}` : flow(i)))],
    ['with a duplicate key', fileOf((i) => (i === 150 ? '  - { id: a, id: b }\n' : flow(i)))],
    ['with items of two indentations', fileOf(flow, '- { id: a }\n')],
  ])('is read at once if it is %s', (_, text) => {
    expect(readParts(text)).toBeUndefined()
  })

  it('has its mistakes at their lines and columns', async () => {
    const clients = Array.from({ length: COUNT }, (_, i) => flow(i)).join('')
    const wrong = clients.replace('client-250,', 'client-250, nme: x,').replace('client-7,', '7,')
    expect(await mistakesIn(completed(`clients:\n${wrong}admin: { prt: 1 }`))).toEqual([
      'sluice.yaml:9:11: clients[7].id: is a number here; put it in quotes',
      'sluice.yaml:252:23: clients[250].nme: unknown key; did you mean "name"?',
      'sluice.yaml:302:10: admin.prt: unknown key; did you mean "port"?',
    ])
  })
})
