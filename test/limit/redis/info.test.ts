import { expect, it } from 'vitest'
import { versionFault } from '../../../src/limit/redis/info.ts'

it.each(['6.2', '6.2.0', '7.0.15', '8.0.1', '10.0.0', '255.255.255'])(
  'the store can use Redis %s',
  (version) => {
    expect(versionFault(`redis_version:${version}\r\n`)).toBeUndefined()
  },
)

it.each(['2.8.24', '6.0.16', '6.1.242'])('the store cannot use Redis %s', (version) => {
  const fault = `is Redis ${version}, and the store needs 6.2 or newer`
  expect(versionFault(`redis_version:${version}\r\n`)).toBe(fault)
})
