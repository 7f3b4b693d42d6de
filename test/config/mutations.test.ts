import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { array, assert, asyncProperty, constantFrom, jsonValue, nat, oneof, record, string } from 'fast-check'
import { describe, expect, it } from 'vitest'
import { parseDocument } from 'yaml'
import { load } from './load-text.ts'
import { PATIENCE_MS, runs } from '../helpers/runs.ts'
import { ConfigError } from '../../src/config/yaml/issue.ts'

/** The reference configuration with its commented settings enabled. */
const GOOD = (await readFile(join(import.meta.dirname, '../../config/sluice.yaml'), 'utf8'))
  .replaceAll(/^( +)# (?=(?:changes|trial|username|token|introspection|audiences|jwks): )/gm, '$1')
  .replace('"${ADMIN_TOKEN}"', '"${ADMIN_TOKEN:-0123456789abcdef}"')
  .replace('"${SECRET}"', 'secret')
  .replace('- id: ', '- name: Bank\n    id: second\n    limits: {}\n  - id: ')
const RUNS = runs(40)
/** Tokens of YAML. */
const BITS = [
  ...['\t', '- ', ': ', '? ', '{', '}', '[', ']', '|', '>', '"', "'", '#', '\n', '---\n', '%YAML 1.1\n'],
  ...['&a ', '*a', '<<: *a', '!!str ', '!x ', '${', '${X}', 'null', '~', '0x1', '.inf', '.nan', '1e999'],
]

/** Resolves if the text loads or is refused with positions; rejects with any other error. */
async function survives(text: string): Promise<void> {
  try {
    await load(text, { PORT: '8080' })
  } catch (error) {
    const { cause } = error as Error
    if (!(cause instanceof ConfigError)) throw error
    expect(cause.problems.length).toBeGreaterThan(0)
    for (const { where, message } of cause.problems) {
      expect(where).toMatch(/sluice\.yaml:\d+:\d+$/)
      expect(message).not.toMatch(/undefined|\[object|Invalid input|\n/)
    }
  }
}

describe('a changed file', { timeout: PATIENCE_MS }, () => {
  it('loads or is refused after any splice into its text', async () => {
    const bits = oneof(string({ maxLength: 8 }), constantFrom(...BITS))
    await assert(
      asyncProperty(nat(GOOD.length), nat(40), bits, (at, cut, bit) =>
        survives(GOOD.slice(0, at) + bit + GOOD.slice(at + cut)),
      ),
      RUNS,
    )
  })

  it('loads or is refused with any replaced value', async () => {
    const paths = valuePaths(parseDocument(GOOD).toJS()).slice(1)
    const value = oneof(jsonValue({ maxDepth: 3 }), constantFrom(Infinity, Number.NaN, -0, 2 ** 60))
    await assert(
      asyncProperty(constantFrom(...paths), value, async (path, value) => {
        const document = parseDocument(GOOD)
        document.setIn(path, value)
        await survives(document.toString())
      }),
      RUNS,
    )
  })

  it(
    'loads or is refused after any change of its lines',
    async () => {
      const lines = GOOD.split('\n')
      const line = nat(lines.length - 1)
      const change = record({
        at: line,
        what: constantFrom('drop', 'double', 'swap', 'indent', 'outdent', 'comment', 'cut', 'key', 'value'),
        other: line,
      })
      await assert(
        asyncProperty(array(change, { minLength: 1, maxLength: 4 }), async (changes) => {
          const changed = [...lines]
          for (const { at, what, other } of changes) {
            const text = changed[at] ?? ''
            const [, key = '', value = ''] = /^([^:]*:)?(.*)$/.exec(text) ?? []
            const foreign = /^([^:]*:)?(.*)$/.exec(lines[other]!) ?? []
            if (what === 'drop') changed.splice(at, 1)
            else if (what === 'double') changed.splice(at, 0, text)
            else if (what === 'swap') changed[at] = lines[other]!
            else if (what === 'indent') changed[at] = `  ${text}`
            else if (what === 'outdent') changed[at] = text.replace(/^ {1,2}/, '')
            else if (what === 'comment') changed[at] = `# ${text}`
            else if (what === 'cut') changed[at] = text.slice(0, other % (text.length + 1))
            else if (what === 'key') changed[at] = (foreign[1] ?? '') + value
            else changed[at] = key + (foreign[2] ?? '')
          }
          await survives(changed.join('\n'))
        }),
        RUNS,
      )
    },
    PATIENCE_MS,
  )

  it('loads or is refused if it is any JSON', async () => {
    await assert(
      asyncProperty(jsonValue(), (value) => survives(JSON.stringify(value))),
      RUNS,
    )
  })
})

/** Returns the paths of all values of a document. */
function valuePaths(
  value: unknown,
  path: readonly (string | number)[] = [],
): readonly (readonly (string | number)[])[] {
  if (typeof value !== 'object' || value === null) return [path]
  const inner: [string | number, unknown][] = Array.isArray(value)
    ? [...value.entries()]
    : Object.entries(value)
  return [path, ...inner.flatMap(([key, item]) => valuePaths(item, [...path, key]))]
}
