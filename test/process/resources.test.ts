import { expect, it } from 'vitest'
import { createResources } from '../../src/process/resources.ts'

it('a resource is built once for each pool and settings, and closed if a reload drops it, or built it and failed', () => {
  const resources = createResources()
  const events: string[] = []
  /** Creates a pool whose resources record when they are built and closed. */
  function recordingPool(kind: string) {
    const { get, has, settings } = resources.createPool<number, object>()
    const build = (x: number) => () => {
      events.push(`build ${kind} ${x}`)
      return { close: () => events.push(`close ${kind} ${x}`) }
    }
    return { has, settings, get: (x: number) => get(x, build(x)) }
  }
  const a = recordingPool('a')
  const b = recordingPool('b')
  resources.replace(() => [a.get(1), b.get(1), a.get(1)])
  // Outside `replace`, as a request does.
  a.get(2)
  expect(events.splice(0)).toEqual(['build a 1', 'build b 1', 'build a 2'])

  expect(() =>
    resources.replace(() => {
      a.get(1)
      a.get(3)
      throw new Error('a bad certificate')
    }),
  ).toThrow('a bad certificate')
  expect(events.splice(0)).toEqual(['build a 3', 'close a 3'])
  expect([b.has(1), a.has(3)]).toEqual([true, false])

  const before = resources.replace(() => {
    a.get(2)
    return a.settings()
  })
  expect(before).toEqual([1, 2])
  expect(events.splice(0)).toEqual(['close a 1', 'close b 1'])
  resources.close()
  expect(events).toEqual(['close a 2'])
})
