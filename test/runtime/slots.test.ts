import { describe, expect, it } from 'vitest'
import { createSlots } from '../../src/runtime/slots.ts'

describe('slots', () => {
  it('have a maximum in all, and one for each caller', () => {
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
