import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createSlots, type ListItem, UnorderedList } from '../../src/runtime/hot-path.ts'

const items = (count: number): ListItem[] => Array.from({ length: count }, () => ({ index: -1 }))

function held(bag: UnorderedList<ListItem>): ReadonlySet<ListItem> {
  const found: ListItem[] = []
  bag.forEach((item) => found.push(item))
  expect(found).toHaveLength(bag.size)
  return new Set(found)
}

describe('an unordered list', () => {
  it('contains the same items as a set, after any additions and deletions', () => {
    const operations = fc.array(fc.nat({ max: 9 }), { maxLength: 100 })
    fc.assert(
      fc.property(operations, (indices) => {
        const all = items(10)
        const bag = new UnorderedList<ListItem>()
        const set = new Set<ListItem>()
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

  it('ignores the deletion of an item that it does not contain', () => {
    const bag = new UnorderedList<ListItem>()
    const [one, other] = items(2)
    bag.add(one!)
    bag.delete(other!)
    bag.delete(one!)
    bag.delete(one!)
    expect(bag.size).toBe(0)
  })

  it('calls back with each item, also if the callback deletes that item or all items', () => {
    const bag = new UnorderedList<ListItem>()
    const all = items(5)
    for (const item of all) bag.add(item)
    const seen = new Set<ListItem>()
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

describe('slots', () => {
  it('slots have a maximum in all, and one for each caller', () => {
    const slots = createSlots(3, 2)
    const free = () => ['a', 'b', 'c'].map((caller) => slots.isFree(caller))
    slots.take('a')
    slots.take('a')
    expect(free()).toEqual([false, true, true])
    slots.take('b')
    expect(free()).toEqual([false, false, false])
    slots.release('a')
    expect(free()).toEqual([true, true, true])
  })
})
