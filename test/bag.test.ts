import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Bag, type InBag } from '../src/bag.ts'

const items = (count: number): InBag[] => Array.from({ length: count }, () => ({ index: -1 }))

function held(bag: Bag<InBag>): ReadonlySet<InBag> {
  const found: InBag[] = []
  bag.forEach((item) => found.push(item))
  expect(found).toHaveLength(bag.size)
  return new Set(found)
}

describe('a bag', () => {
  it('holds what a set would hold, whatever is added and deleted', () => {
    const operations = fc.array(fc.nat({ max: 9 }), { maxLength: 100 })
    fc.assert(
      fc.property(operations, (indices) => {
        const all = items(10)
        const bag = new Bag<InBag>()
        const set = new Set<InBag>()
        for (const index of indices) {
          const item = all[index]!
          if (set.delete(item)) bag.delete(item)
          else {
            set.add(item)
            bag.add(item)
          }
          expect(held(bag)).toEqual(set)
        }
      }),
    )
  })

  it('takes the deletion of what it does not hold', () => {
    const bag = new Bag<InBag>()
    const [one, other] = items(2)
    bag.add(one!)
    bag.delete(other!)
    bag.delete(one!)
    bag.delete(one!)
    expect(bag.size).toBe(0)
  })

  it('calls back with each item, though it deletes that one or all', () => {
    const bag = new Bag<InBag>()
    const all = items(5)
    for (const item of all) bag.add(item)
    const seen = new Set<InBag>()
    bag.forEach((item) => {
      seen.add(item)
      bag.delete(item)
    })
    expect(seen.size).toBe(5)
    for (const item of all) bag.add(item)
    let calls = 0
    bag.forEach(() => {
      calls++
      for (const item of all) bag.delete(item)
    })
    expect(calls).toBe(1)
  })
})
