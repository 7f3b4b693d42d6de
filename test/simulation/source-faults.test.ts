import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { SOURCE_FAULTS } from './source-faults.ts'

describe('a fault of the simulation', () => {
  test.each(Object.entries(SOURCE_FAULTS))('replaces text that is there once: %s', (_, changes) => {
    for (const [file, text] of changes)
      expect([file, text, readFileSync(file, 'utf8').split(text).length - 1]).toEqual([file, text, 1])
  })
})
