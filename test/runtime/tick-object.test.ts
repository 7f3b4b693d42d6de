import { executionAsyncResource } from 'node:async_hooks'
import { setImmediate as turn } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { expect, test } from 'vitest'
import { keepTickObject, keptTickObjects } from '../../src/runtime/tick-object.ts'

setFlagsFromString('--expose-gc')
setFlagsFromString('--allow-natives-syntax')
const collect = runInNewContext('gc') as () => void
const haveSameClass = runInNewContext('(a, b) => %HaveSameMap(a, b)') as (a: object, b: object) => boolean

test('the objects of process.nextTick have one hidden class, also after collections that find none', async () => {
  keepTickObject()
  await turn()
  for (let i = 0; i < 5; i++) {
    collect()
    await turn()
  }
  const later = await new Promise<object>((resolve) =>
    process.nextTick(() => resolve(executionAsyncResource())),
  )
  expect(later).toHaveProperty('callback')
  expect(haveSameClass(keptTickObjects()[0]!, later)).toBe(true)
})
