import { expect, it } from 'vitest'
import { clientChunks } from '../../src/config/client-chunks.ts'
import { completed, load } from './load-text.ts'

it('hands over each client in the same chunk as its limits', async () => {
  const clients = Array.from({ length: 501 }, (_, i) => `  - { id: c${i} }`)
  const last = '  - { id: last, limits: { requests: { limit: 5 } } }'
  const { config } = await load(completed(['clients:', ...clients, last].join('\n')))
  const chunks = [...clientChunks(config)]
  expect(chunks.map(({ clients }) => clients.length)).toEqual([500, 2])
  expect(chunks.map(({ clientLimits }) => [...clientLimits.keys()])).toEqual([[], ['last']])
})
