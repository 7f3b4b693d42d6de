import { expect, it } from 'vitest'
import { hashOfKey } from '../../src/authenticate/key/key-text.ts'
import { clientChunks, createCollector, withoutClients } from '../../src/config/client-chunks.ts'
import { completed, load } from './load-text.ts'

it('hands over each client in the same chunk as its limits', async () => {
  const clients = Array.from({ length: 501 }, (_, i) => `  - { id: c${i} }`)
  const last = '  - { id: last, limits: { requests: { limit: 5 } } }'
  const { config } = await load(completed(['clients:', ...clients, last].join('\n')))
  const chunks = [...clientChunks(config)]
  expect(chunks.map(({ clients }) => clients.length)).toEqual([500, 2])
  expect(chunks.map(({ clientLimits }) => [...clientLimits.keys()])).toEqual([[], ['last']])
})

it('hands over API keys in chunks, also more than clients, and collects the plans of both', async () => {
  const keys = Array.from(
    { length: 501 },
    (_, i) => `- { id: k${i}, sha256: "${hashOfKey(`${i}`)}", plan: pro }\n`,
  )
  const text = `keys: { file: keys.yaml }\nplans: { pro: { requests: 5 } }\nclients: [{ id: c, plan: pro }]`
  const { config } = await load(completed(text), {}, [], { 'keys.yaml': keys.join('') })
  const chunks = [...clientChunks(config)]
  expect(chunks.map(({ apiKeys }) => apiKeys.length)).toEqual([500, 1])
  const { add, collect } = createCollector()
  for (const chunk of chunks) add(chunk)
  const collected = collect(withoutClients(config))
  expect(collected.apiKeys).toEqual(config.apiKeys)
  expect(collected.plans).toEqual(config.plans)
  expect(collected.plans.ofClients.size).toBe(502)
})
