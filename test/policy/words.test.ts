import { hash } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { Refusal } from '../../src/errors.ts'
import { callerKey, showKey } from '../../src/policy/caller-keys.ts'
import { fieldsOf } from '../../src/policy/conditions.ts'
import { formatCaller, identityOf, parseCaller, showCaller } from '../../src/policy/counted-caller.ts'
import { type Caller, type Facts, NO_FACTS } from '../../src/policy/facts.ts'
import type { Limit } from '../../src/policy/limit.ts'
import { overrideKey } from '../../src/policy/overrides.ts'
import { formsOf, partOf, wordOf, type WordName } from '../../src/policy/words.ts'
import { completed, mistakesIn } from '../config/load-text.ts'
import { compileLimits, quotasOf } from './quotas.ts'

const TOKEN = 'opaque-token-of-acme'

/** A request that has a word, and how a caller with the same value is written; undefined for a word that names no caller. */
interface Sample {
  readonly caller?: Partial<Caller>
  readonly facts?: Partial<Facts>
  readonly written: string | undefined
}

/** A row for each word: without one for a new word, this file does not compile. */
const SAMPLES: Readonly<Record<WordName, Sample>> = {
  client: { caller: { client: 'acme' }, written: 'client:acme' },
  user: { caller: { user: 'ana' }, written: 'user:ana' },
  ip: { caller: { ip: '2001:db8::1' }, written: 'ip:2001:db8::ffff' },
  route: { facts: { route: { match: 'GET /a' } }, written: undefined },
  token: {
    facts: { head: { authorization: [`Bearer ${TOKEN}`] } },
    written: `token:${hash('sha256', TOKEN, 'base64url')}`,
  },
  claim: { caller: { claims: { NAME: 'consent-17' } }, written: 'claim:NAME=consent-17' },
  header: {
    facts: { field: (name) => (name === 'name' ? ['Key-1234567'] : undefined) },
    written: 'header:NAME=KEY-1234567',
  },
  parameter: { facts: { params: { parameter: 'a' } }, written: undefined },
}

const limitPer = (part: string, rest: Partial<Limit> = {}): Limit => ({
  name: 'l',
  per: [part],
  limit: 10,
  windowMs: 60_000,
  shadow: false,
  changes: [],
  ...rest,
})

const PARTS = [...formsOf(), 'parameter'].map((form) => partOf(form))

describe.each(PARTS)('the word of %s', (part) => {
  const { word, isIdentity, isNamed, isSecret, mayBeSecret, mayLack, from } = wordOf(part)
  const { caller = {}, facts: own = {}, written } = SAMPLES[word]
  const facts = { ...NO_FACTS, ...own }
  const applied = (limit: Limit, options = {}) =>
    quotasOf([limit], caller, { facts, params: facts.params, ...options })

  test('names the header fields that it reads, so that other spellings of them are dropped', () => {
    const asked = new Set<string>()
    const field = (name: string) => (asked.add(name), own.field?.(name))
    applied(limitPer(part), { facts: { ...facts, field } })
    expect(fieldsOf([limitPer(part)])).toEqual([...asked])
  })

  test('is a part of "per"', async () => {
    const limits = `limits: { requests: { per: ["${part}"], limit: 1, window: 1s } }`
    const mistakes = (await mistakesIn(completed(limits))).filter((line) =>
      line.includes('limits.requests.per'),
    )
    expect(mistakes).toEqual([])
  })

  test.skipIf(isNamed || from === 'path')('is not the name of a path parameter', async () => {
    const routes = `routes: [{ match: "/:${part}", authenticate: none, upstream: data }]`
    expect(await mistakesIn(completed(routes))).toEqual([
      expect.stringContaining(`":${part}" would hide the caller's own ${part}`),
    ])
  })

  test('names a caller if it says who calls', () => {
    expect(identityOf([part])).toEqual(written === undefined ? [] : [part])
    expect(isIdentity).toBe(written !== undefined)
  })

  test.skipIf(written === undefined)('gets the key of the caller as operators write it', () => {
    const parsed = parseCaller(written!)
    const [quota] = applied(limitPer(part))
    expect(quota!.key).toBe(callerKey('p', limitPer(part), parsed))
    expect(parseCaller(formatCaller(parsed))).toEqual(parsed)
    const both = parseCaller(`${written} client:other`)
    expect(both).toEqual([...parsed, { word: 'client', value: 'other' }])
  })

  test.skipIf(written === undefined)('is overridden for the caller', () => {
    const override = { caller: parseCaller(written!), name: 'l', limit: 3, setAt: 0 }
    const overrides = new Map([[overrideKey('p', override), override]])
    expect(applied(limitPer(part), { overrides })).toMatchObject([{ limit: 3, source: 'override' }])
  })

  test.skipIf(written === undefined)('is shown whole, or in its short form if it is a secret', () => {
    const shown = showCaller(parseCaller(written!))
    const [quota] = applied(limitPer(part))
    expect(shown.includes('…')).toBe(isSecret)
    expect(showKey('p', limitPer(part), quota!.key).includes('…')).toBe(isSecret)
  })

  test.runIf(mayBeSecret)('is counted by its digest if parameters make it a secret', () => {
    const [quota] = applied(limitPer(part), { parameters: { [part]: { secret: true } } })
    expect(decodeURIComponent(quota!.key)).toContain('…')
  })

  test.skipIf(mayBeSecret)('cannot be made a secret', async () => {
    expect(await mistakesIn(completed(`parameters: { "${part}": { secret: true } }`))).toEqual([
      expect.stringMatching(/(?:cannot be|is always) a secret/),
    ])
  })

  // Every request has an address.
  test.skipIf(from === 'connection')('is refused if a request lacks it, or skipped if it may', () => {
    const quotasWith = (rest: Partial<Limit>) =>
      compileLimits([limitPer(part, rest)], { prefix: 'p' })({ ip: '' }, NO_FACTS, 0)
    const refused: unknown = expect.any(Refusal)
    expect(quotasWith({})).toEqual(refused)
    expect(quotasWith({ skipsMissing: true })).toEqual(mayLack ? [] : refused)
  })
})

test.each(['claim', 'header'])('a path parameter may be named %s', (name) => {
  const [quota] = quotasOf([limitPer(name)], {}, { params: { [name]: 'A' } })
  expect(quota!.key).toBe('p:{a}:l')
})
