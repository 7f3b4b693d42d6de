import { describe, expect, it } from 'vitest'
import { createSlots } from '../../../src/authenticate/token/semaphore.ts'

const patient = new AbortController().signal

/** Who got a place so far, in order. */
function takers(places: number, maxWaiting: number) {
  const slots = createSlots(places, maxWaiting)
  const got: string[] = []
  const take = (name: string, signal = patient) =>
    slots.take(signal).then(
      () => void got.push(name),
      (error: Error) => void got.push(`${name}: ${error.message}`),
    )
  /** Lets whoever may enter do so. */
  const settle = () => new Promise((resolve) => setImmediate(resolve))
  return { slots, got, take, settle }
}

describe('places', () => {
  it('are taken at once while there are some, then in the order of asking', async () => {
    const { slots, got, take, settle } = takers(2, 10)
    for (const name of ['a', 'b', 'c', 'd']) void take(name)
    await settle()
    expect(got).toEqual(['a', 'b'])
    slots.give()
    await settle()
    expect(got).toEqual(['a', 'b', 'c'])
    slots.give()
    await settle()
    expect(got).toEqual(['a', 'b', 'c', 'd'])
  })

  it('change hands without room for one who comes in between', async () => {
    const { slots, got, take, settle } = takers(1, 10)
    for (const name of ['a', 'b']) void take(name)
    slots.give()
    void take('c')
    await settle()
    expect(got).toEqual(['a', 'b'])
    slots.give()
    slots.give()
    await settle()
    void take('d')
    await settle()
    expect(got).toEqual(['a', 'b', 'c', 'd'])
  })

  it('are waited for by so many at most', async () => {
    const { got, take, settle } = takers(1, 1)
    for (const name of ['a', 'b', 'c']) void take(name)
    await settle()
    expect(got).toEqual(['a', 'c: 1 wait already'])
  })

  it('go past those who no longer wait, who leave at once', async () => {
    const { slots, got, take, settle } = takers(1, 2)
    const leaving = new AbortController()
    void take('a')
    void take('b', leaving.signal)
    void take('c')
    leaving.abort(new Error('too late'))
    await settle()
    expect(got).toEqual(['a', 'b: too late'])
    void take('d')
    slots.give()
    slots.give()
    await settle()
    expect(got).toEqual(['a', 'b: too late', 'c', 'd'])
  })
})
