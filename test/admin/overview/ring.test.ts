import fc from 'fast-check'
import { expect, test } from 'vitest'
import { Ring } from '../../../src/admin/overview/ring.ts'

const SECONDS = 5

const countOf = (seconds: readonly number[], wanted: number): number =>
  seconds.filter((second) => second === wanted).length

test('a ring has the counts of the last complete seconds, however they are read', () => {
  const steps = fc.array(fc.record({ pause: fc.nat(8), calls: fc.nat(3), isRead: fc.boolean() }))
  fc.assert(
    fc.property(steps, (all) => {
      const ring = new Ring(SECONDS)
      const added: number[] = []
      let now = 1
      const read = (): void => {
        const before = Array.from({ length: SECONDS }, (_, i) => countOf(added, now - SECONDS + i))
        expect(ring.before(now)).toEqual(before)
      }
      for (const { pause, calls, isRead } of all) {
        now += pause
        if (isRead) read()
        for (let i = 0; i < calls; i++) {
          ring.add(now)
          added.push(now)
        }
      }
      now++
      read()
    }),
  )
})

test('a call that ended just before the second began is counted in its own second', () => {
  const ring = new Ring(SECONDS)
  ring.before(8)
  ring.add(7)
  ring.add(8)
  expect(ring.before(9)).toEqual([0, 0, 0, 1, 1])
})
