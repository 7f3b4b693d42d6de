import { describe, expect, it } from 'vitest'
import fc from 'fast-check'
import { createKeyText, hashOfKey } from '../../src/authenticate/key/key-text.ts'
import { readKeyLine } from '../../src/config/keys/key-lines.ts'
import { clientIdIssue } from '../../src/config/sections/client-id.ts'
import { readKeys } from '../../src/config/keys/keys-file.ts'
import { anyText } from '../helpers/any-text.ts'
import { runs } from '../helpers/runs.ts'

const hash = (text: string) => hashOfKey(text)
const [one, two] = [hash('one'), hash('two')]

/** Returns the lines of the `ConfigError`; an empty list if the file is valid. */
function mistakesIn(text: string): readonly string[] {
  try {
    readKeys(text, 'keys.yaml')
    return []
  } catch (error) {
    return (error as Error).message.split('\n')
  }
}

describe('the file of keys', () => {
  it('is read in one line for each key as in any other YAML', () => {
    const items = [
      { client: 'acme', sha256: one, untilAt: Date.parse('2027-01-31T00:00:00Z') },
      { client: 'Zoë @x', sha256: two },
    ]
    const lines = `# keys\n\n- { id: acme, sha256: ${one}, until: 2027-01-31T00:00:00Z } # old\n- { id: "Zoë @x", sha256: "${two}" }\n`
    const block = `- id: acme\n  sha256: ${one.toUpperCase()}\n  until: '2027-01-31T00:00:00Z'\n- sha256: "${two}"\n  id: Zoë @x\n`
    expect(readKeys(lines, 'keys.yaml')).toEqual(items)
    expect(readKeys(block, 'keys.yaml')).toEqual(items)
    expect(readKeys('[]', 'keys.yaml')).toEqual([])
  })

  it.each([
    [
      '',
      [
        'keys.yaml:1:1: the file is empty; "sluice keys create" writes keys to it, and [ ] is a list without keys',
      ],
    ],
    [
      'keys: []',
      [
        'keys.yaml:1:1: the file must be a list; "sluice keys create" writes keys to it, and [ ] is a list without keys',
      ],
    ],
    [
      '- { id: "", sha256: 12, until: 12:30 }\n- { id: 5, plans: a }\n- hunter2\n',
      [
        'keys.yaml:1:9: [0].id: is empty; write the id of the client',
        'keys.yaml:1:21: [0].sha256: is a number here; put it in quotes',
        'keys.yaml:1:32: [0].until: must be an instant such as 2027-01-31T00:00:00Z',
        'keys.yaml:2:3: [1].sha256: is missing; write the SHA-256 of a key in 64 hex digits, which "sluice keys create ID --stdin" adds for a key',
        'keys.yaml:2:9: [1].id: is a number here; put it in quotes',
        'keys.yaml:2:12: [1]: unknown key; did you mean "plan"?',
        'keys.yaml:3:3: [2]: must be a mapping (keys: id, sha256, plan, until)',
      ],
    ],
    [
      `- { id: a, sha256: hunter2 }\n- { id: b, sha256: "${one}0" }\n- { id: c, sha256: "${one.slice(1)}" }\n`,
      [19, 19, 19].map(
        (column, i) =>
          `keys.yaml:${i + 1}:${column + 1}: [${i}].sha256: must be the SHA-256 of a key in 64 hex digits, which "sluice keys create ID --stdin" adds for a key`,
      ),
    ],
    [
      `- { id: a, sha256: "${one}" }\n- { id: b, sha256: "${one}" }\n`,
      ['keys.yaml:2:20: [1].sha256: is also the hash of [0]; remove one'],
    ],
    ...[
      '2027-01-31',
      '2027-02-30T00:00:00Z',
      '2027-01-31 00:00:00Z',
      '1800000000',
      '24:00',
      '2027-01-31T00:00:00',
    ].map((until): [string, string[]] => [
      `- { id: a, sha256: "${one}", until: ${until} }\n`,
      ['keys.yaml:1:95: [0].until: must be an instant such as 2027-01-31T00:00:00Z'],
    ]),
  ])('has its mistakes named with their places: %s', (text, mistakes) => {
    expect(mistakesIn(text)).toEqual(mistakes)
  })

  it('has plans of its clients, which must exist and be the same for all keys of a client', () => {
    const text = `- { id: a, sha256: "${one}", plan: pro }\n- { id: a, sha256: "${two}" }\n- { id: b, sha256: "${hash('b')}", plan: prox }\n- { id: a, sha256: "${hash('c')}", plan: free }\n- { id: c, sha256: "${hash('d')}", plan: none }\n`
    const lines = (plans?: readonly string[], given = text) => {
      try {
        return readKeys(given, 'keys.yaml', plans)
      } catch (error) {
        return (error as Error).message.split('\n')
      }
    }
    const valid = text.split('\n').slice(0, 4).join('\n')
    expect(lines(['free', 'pro'], valid)).toEqual([
      'keys.yaml:2:3: [1].plan: must be that of [0], a key of the same client; write it in both, or in none',
      'keys.yaml:3:94: [2].plan: there is no such plan; did you mean "pro"?',
      'keys.yaml:4:94: [3].plan: must be that of [0], a key of the same client; write it in both, or in none',
    ])
    expect(lines([], text.split('\n')[0])).toEqual([
      'keys.yaml:1:94: [0].plan: there is no such plan; define it under "plans"',
    ])
    expect(lines(undefined, text.split('\n')[0])).toEqual([{ client: 'a', sha256: one, plan: 'pro' }])
    expect(lines(['none'])).toEqual([
      'keys.yaml:5:94: [4].plan: must be the name of a plan: letters, digits, ".", "-" and "_", and not none',
    ])
  })

  it('with a key in place of its hash, also in a comment or as a name, is refused without showing the key', () => {
    const key = createKeyText()
    for (const text of [
      `- { id: a, sha256: "${key}" }\n`,
      `- { id: ${key}, sha256: "${one}" }\n`,
      `- { id: a, sha256: "${one}" } # ${key}\n`,
      `- { id: a, ${key}: b }\n`,
      `- ${key}\n`,
      `{ ${key}`,
    ]) {
      const [mistake, ...others] = mistakesIn(`# keys\n${text}`)
      expect(others).toEqual([])
      expect(mistake).toMatch(
        new RegExp(
          `^keys.yaml:2:${text.indexOf(key) + 1}: is a key, which .*sluice keys create ID --stdin"$`,
        ),
      )
      expect(mistake).not.toContain(key)
    }
  })

  it('with a key of another gateway where a word of the file belongs is refused without showing it', () => {
    const key = 'the-key-of-another-gateway'
    for (const text of [
      `- ${key}: acme`,
      `- { id: a, sha256: "${one}", ${key}: 1 }`,
      `- { id: a, ${key}: 1, ${key}: 2 }`,
      `- { id: a, sha256: "${one}", ${key} }`,
      `- { id: a, sha256: ${key} }`,
      `%${key}\n---\n- a`,
      `- *${key}`,
      `- !${key} a`,
    ]) {
      const mistakes = mistakesIn(text)
      expect(mistakes.length).toBeGreaterThan(0)
      expect(mistakes.join('\n')).not.toContain(key)
    }
    expect(mistakesIn(`- { id: a, sha256: "${one}", ${key}: 1 }`)).toEqual([
      'keys.yaml:1:88: [0]: unknown key; write one of id, sha256, plan, until',
    ])
  })

  it('has no ids with characters that are not seen, or that look like a blank', () => {
    const of = (id: string) => mistakesIn(`# keys\n- { id: "${id}", sha256: "${one}" }\n`)
    for (const unseen of ['\u200b', '\u200d', '\u2060', '\u00ad', '\u3164', '\u202e', '\u{e0041}'])
      expect(of(`ac${unseen}me`)).toEqual([
        `keys.yaml:2:9: [0].id: has the character U+${unseen.codePointAt(0)!.toString(16).toUpperCase().padStart(4, '0')}, which is not seen or looks like a blank; remove it`,
      ])
    for (const blank of ['\u00a0', '\u2003', '\u3000', '\u2800'])
      expect(of(`ac${blank}me`)[0]).toMatch(/^keys\.yaml:2:9: \[0\]\.id: has the character U\+/)
    expect(of('Zoë ä & Söhne')).toEqual([])
  })

  it('is read alike with the line breaks of Windows', () => {
    const text = `# keys\n- { id: a, sha256: "${one}" } # first\n\n`
    expect(readKeys(text.replaceAll('\n', '\r\n'), 'keys.yaml')).toEqual(readKeys(text, 'keys.yaml'))
  })

  it('is read by lines only if YAML reads the same in them', () => {
    const id = fc.oneof(
      fc.constantFrom(
        'acme',
        'true',
        'null',
        'No',
        '1e5',
        '~',
        '"a b"',
        '"a#b"',
        "'x'",
        'a-b',
        'x: y',
        '*a',
        '&a',
        '"\\n"',
      ),
      anyText().map((text) => JSON.stringify(text)),
    )
    const sha256 = fc.constantFrom(
      one,
      `"${two}"`,
      one.toUpperCase(),
      '1'.repeat(64),
      `${'1'.repeat(30)}e${'2'.repeat(33)}`,
      'x',
    )
    const plan = fc.constantFrom('', ', plan: pro', ', plan: "a.b"', ', plan: True', ', plan: 1')
    const until = fc.constantFrom(
      '',
      ', until: 2027-01-31T00:00:00Z',
      ', until: 2027-02-30T00:00:00Z',
      ', until: 1',
    )
    const end = fc.constantFrom(' }', ' } # a', ' }#a', '}', ' } ')
    fc.assert(
      fc.property(id, sha256, plan, until, end, (id, sha256, plan, until, end) => {
        const line = `- { id: ${id}, sha256: ${sha256}${plan}${until}${end}`
        const read = readKeyLine(line)
        // Both refuse ids with characters that are not seen.
        if (read === undefined || clientIdIssue(read.client) !== true) return
        // A line before it that only YAML reads.
        const [, ofYaml] = readKeys(`- {id: line-before, sha256: "${hash('z')}"}\n${line}\n`, 'keys.yaml')
        expect(read).toEqual(ofYaml)
      }),
      runs(300),
    )
  })
})
