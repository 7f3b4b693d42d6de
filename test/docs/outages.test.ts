import { readFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import { boundsOf } from '../../src/limit/fallback/part.ts'
import { fileOf, sluice } from '../commands/run.ts'

/** The page of outages shows what the gateways really do. */

const PAGE = readFileSync('docs/outages.md', 'utf8')
const blockOf = (kind: string): string => new RegExp(`\`\`\`${kind}\n(.*?)\`\`\``, 's').exec(PAGE)![1]!

it('the page shows what check --outage prints about its file', async () => {
  const args = ['check', '--outage', '--gateways', '50', '--config', fileOf(blockOf('yaml'))]
  expect(await sluice(args)).toEqual({ code: 0, stdout: blockOf('text'), stderr: '' })
})

it('the table of parts has the bounds of the code', () => {
  const [, chapter = ''] = PAGE.split('## Choose the least part\n')
  const lines = chapter.split('\n## ')[0]!.split('\n')
  const [head, , ...rows] = lines.filter((line) => line.startsWith('|'))
  const cellsOf = (row: string) =>
    row
      .split('|')
      .slice(1, -1)
      .map((cell) => cell.trim())
  const percents = cellsOf(head!)
    .slice(1)
    .map((cell) => Number(/(\d+)%/.exec(cell)?.[1] ?? 0))
  expect(percents).toEqual([0, 5, 10, 25])
  expect(rows).toHaveLength(5)
  for (const row of rows) {
    const [count, ...cells] = cellsOf(row)
    const expected = percents.map((percent) => {
      const { ofOne, ofAll } = boundsOf(200, 1, { gateways: Number(count), percent })
      return `${ofOne}, all ${ofAll}`
    })
    expect(cells).toEqual(expected)
  }
})
