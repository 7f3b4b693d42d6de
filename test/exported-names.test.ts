import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'

const EXPORTED = /^export (?:async )?(?:const|function\*?|class|interface|type) (\w+)/gm
/** Each module of a command exports its `run`, which src/commands/cli.ts calls. */
const BY_CONTRACT = new Set(['run'])

it('every exported name, of a value or of a type, exists once', () => {
  const places = new Map<string, readonly string[]>()
  for (const file of readdirSync('src', { recursive: true, encoding: 'utf8' })) {
    if (!file.endsWith('.ts')) continue
    // The overloads of a function have one name.
    const names = new Set(
      Array.from(readFileSync(join('src', file), 'utf8').matchAll(EXPORTED), ([, name]) => name!),
    )
    for (const name of names) places.set(name, [...(places.get(name) ?? []), file])
  }
  expect([...places].filter(([name, files]) => files.length > 1 && !BY_CONTRACT.has(name))).toEqual([])
})
