import { afterEach, expect, it } from 'vitest'
import { createLogSampler } from '../../src/observe/access-log.ts'

let written: (string | number)[] = []
let formatted = 0
const samplers: { close(): void }[] = []
afterEach(() => {
  for (const sampler of samplers.splice(0)) sampler.close()
})

function setUp() {
  written = []
  formatted = 0
  const sampler = createLogSampler(
    (line: string) => {
      formatted++
      return line
    },
    (line, omitted) => written.push(line, omitted),
  )
  samplers.push(sampler)
  return sampler
}

it('writes the first line of each key at once, then one a second with the number of omitted lines', () => {
  const { add } = setUp()
  add('a', 'a1', 0)
  add('b', 'b1', 1)
  for (let i = 2; i < 100; i++) add('a', `a${i}`, i * 10)
  expect(written).toEqual(['a1', 0, 'b1', 0])
  // Only written lines, and the first omitted one, are formatted.
  expect(formatted).toBe(3)
  add('a', 'last', 1000)
  expect(written.slice(4)).toEqual(['last', 98])
  add('a', 'next', 1999)
  add('a', 'then', 2000)
  expect(written.slice(6)).toEqual(['then', 1])
})

it('writes the first omitted line after its second if no line follows, and forgets a key that was idle for a second', () => {
  const { add, sweep } = setUp()
  for (const line of ['a1', 'a2', 'a3', 'a4']) add('a', line, 0)
  sweep(999)
  expect(written).toEqual(['a1', 0])
  sweep(1000)
  expect(written.slice(2)).toEqual(['a2', 2])
  sweep(2000)
  add('a', 'a5', 2001)
  expect(written.slice(4)).toEqual(['a5', 0])
})

it('writes the pending lines when it is closed', () => {
  const { add, close } = setUp()
  for (const line of ['a1', 'a2', 'a3']) add('a', line, 0)
  close()
  expect(written).toEqual(['a1', 0, 'a2', 1])
})

it('writes every line of the keys beyond 10,000', () => {
  const { add } = setUp()
  for (let i = 0; i < 10_001; i++) add(`key ${i}`, 'first', 0)
  for (let i = 9998; i < 10_001; i++) add(`key ${i}`, 'second', 1)
  expect(written.slice(2 * 10_001)).toEqual(['second', 0])
})
