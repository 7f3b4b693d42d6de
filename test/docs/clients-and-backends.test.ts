import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { parse } from 'yaml'
import { fileText, REPOSITORY } from '../helpers/repository.ts'

const descriptions = parse(
  readFileSync(join(REPOSITORY, 'config/reference/descriptions.yaml'), 'utf8'),
) as object
/** The last parts of all keys. */
const keys = new Set(Object.keys(descriptions).map((path) => path.split('.').at(-1)!))
/** `KEY`, `SECTION.KEY` or `KEY: VALUE` in the last column of a table, in lower case at first. */
const KEY = /`(?:listen\.)?([a-z]\w+)(?:: [^`]+)?`/g

it('docs/clients-and-backends.md names keys that exist', () => {
  const rows = fileText('docs/clients-and-backends.md')
    .split('\n')
    .filter((line) => line.startsWith('| '))
  const named = rows.flatMap((row) => [...row.split(' | ').at(-1)!.matchAll(KEY)].map(([, key]) => key!))
  expect(named.length).toBeGreaterThan(15)
  expect(named.filter((key) => !keys.has(key) && !key.startsWith('sluice_') && key !== 'debug')).toEqual([])
})
