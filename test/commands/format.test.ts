import { expect, it } from 'vitest'
import { formatRows } from '../../src/commands/format.ts'

it('a cell with a line feed does not look like a further row', () => {
  const table = formatRows(['CALLER', 'NOTE'], [['a', 'ok\nvictim  -\t\u2028']])
  expect(table.split('\n')).toHaveLength(2)
  expect(table).toContain(String.raw`ok\u000avictim  -\u0009\u2028`)
})
