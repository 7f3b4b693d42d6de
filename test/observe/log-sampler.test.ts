import { afterEach, expect, it } from 'vitest'
import { createLogSampler } from '../../src/observe/log-sampler.ts'

let written: (string | number)[] = []
let made = 0
const samples: { close(): void }[] = []
afterEach(() => {
  for (const sample of samples.splice(0)) sample.close()
})

function setUp() {
  written = []
  made = 0
  const sample = createLogSampler(
    (line: string) => {
      made++
      return line
    },
    (line, omitted) => written.push(line, omitted),
  )
  samples.push(sample)
  return sample
}

it('writes the first line of each key at once, then one a second with how many it left out', () => {
  const { take } = setUp()
  take('a', 'a1', 0)
  take('b', 'b1', 1)
  for (let i = 2; i < 100; i++) take('a', `a${i}`, i * 10)
  expect(written).toEqual(['a1', 0, 'b1', 0])
  // However many are left out, few lines are made.
  expect(made).toBe(3)
  take('a', 'last', 1000)
  expect(written.slice(4)).toEqual(['last', 98])
  take('a', 'next', 1999)
  take('a', 'then', 2000)
  expect(written.slice(6)).toEqual(['then', 1])
})

it('writes what no later line counts after its second, and forgets a key that was idle for one', () => {
  const { take, sweep } = setUp()
  for (const line of ['a1', 'a2', 'a3', 'a4']) take('a', line, 0)
  sweep(999)
  expect(written).toEqual(['a1', 0])
  sweep(1000)
  expect(written.slice(2)).toEqual(['a2', 2])
  sweep(2000)
  take('a', 'a5', 2001)
  expect(written.slice(4)).toEqual(['a5', 0])
})

it('loses nothing at the end', () => {
  const { take, close } = setUp()
  for (const line of ['a1', 'a2', 'a3']) take('a', line, 0)
  close()
  expect(written).toEqual(['a1', 0, 'a2', 1])
})

it('writes every line of the keys beyond 10,000', () => {
  const { take } = setUp()
  for (let i = 0; i < 10_001; i++) take(`key ${i}`, 'first', 0)
  for (let i = 9998; i < 10_001; i++) take(`key ${i}`, 'second', 1)
  expect(written.slice(2 * 10_001)).toEqual(['second', 0])
})
