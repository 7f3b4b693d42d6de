import { expect, it } from 'vitest'
import { createResources } from '../../src/process/resources.ts'

it('builds a resource once for each kind and settings; closes those that a reload drops, or has built before it failed', () => {
  const resources = createResources()
  const events: string[] = []
  const get = (kind: string, settings: object) =>
    resources.get(kind, settings, () => {
      const name = `${kind} ${Object.values(settings).join()}`
      events.push(`build ${name}`)
      return { close: () => events.push(`close ${name}`) }
    })
  resources.replace(() => [get('a', { x: 1 }), get('b', { x: 1 }), get('a', { x: 1 })])
  // Outside `replace`, as a request does.
  get('a', { x: 2 })
  expect(events.splice(0)).toEqual(['build a 1', 'build b 1', 'build a 2'])

  expect(() =>
    resources.replace(() => {
      get('a', { x: 1 })
      get('a', { x: 3 })
      throw new Error('a bad certificate')
    }),
  ).toThrow('a bad certificate')
  expect(events.splice(0)).toEqual(['build a 3', 'close a 3'])
  expect(resources.has('b', { x: 1 })).toBe(true)

  const before = resources.replace(() => {
    get('a', { x: 2 })
    return resources.before('a')
  })
  expect(before).toEqual([{ x: 1 }, { x: 2 }])
  expect(events.splice(0)).toEqual(['close a 1', 'close b 1'])
  resources.close()
  expect(events).toEqual(['close a 2'])
})
