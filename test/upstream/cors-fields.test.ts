import { expect, it } from 'vitest'
import { createCors } from '../../src/downstream/cors.ts'
import { addCorsFields } from '../../src/upstream/cors-fields.ts'

const APP = 'https://app.example.com'
const { fieldsFor } = createCors({ origins: [APP], credentials: false, maxAgeMs: 0 }, 'X-Request-Id')
const allowed = fieldsFor(APP)
const refused = fieldsFor('https://evil.example')
const [, names] = allowed.expose
const ALLOW = `Access-Control-Allow-Origin: ${APP}`
const EXPOSE = `Access-Control-Expose-Headers: ${names}`

/** Returns the fields of a response, one a line, with those of `cors`. */
function added(lines: readonly string[], cors = allowed): string[] {
  const raw = lines.flatMap((line) => line.split(/:(?: |$)/, 2))
  const fields = addCorsFields(raw, cors)
  return fields.flatMap((name, i) => (i % 2 === 0 ? [`${name}: ${fields[i + 1]}`] : []))
}

it.each([
  ['no field', [], ['Vary: Origin', ALLOW, EXPOSE]],
  ['a Vary', ['vary: Accept'], ['vary: Accept, Origin', ALLOW, EXPOSE]],
  ['an empty Vary', ['Vary: '], ['Vary: Origin', ALLOW, EXPOSE]],
  ['two Vary', ['Vary: A', 'x: y', 'Vary: B'], ['Vary: A', 'x: y', 'Vary: B, Origin', ALLOW, EXPOSE]],
  ['Vary with it', ['Vary: accept, ORIGIN', 'Vary: B'], ['Vary: accept, ORIGIN', 'Vary: B', ALLOW, EXPOSE]],
  ['Vary: *', ['Vary: *'], ['Vary: *', ALLOW, EXPOSE]],
  [
    'its own origin',
    ['access-control-allow-origin: *', 'Vary: Origin'],
    ['access-control-allow-origin: *', 'Vary: Origin', EXPOSE],
  ],
  [
    'its own origin with credentials and exposed fields',
    [
      'Access-Control-Allow-Credentials: true',
      'Access-Control-Expose-Headers: Link',
      'Access-Control-Allow-Origin: https://b.example',
    ],
    [
      'Access-Control-Allow-Credentials: true',
      'Access-Control-Expose-Headers: Link',
      'Access-Control-Allow-Origin: https://b.example',
      'Vary: Origin',
      EXPOSE,
    ],
  ],
  [
    'credentials without an origin, which would allow what the gateway does not',
    ['access-control-allow-credentials: true', 'Access-Control-Expose-Headers: Link'],
    ['Access-Control-Expose-Headers: Link', 'Vary: Origin', ALLOW, EXPOSE],
  ],
] as const)('adds its fields to a response with %s', (_, lines, expected) => {
  expect(added(lines)).toEqual(expected)
})

it.each([
  [['a: b'], ['a: b', 'Vary: Origin']],
  [
    ['Access-Control-Allow-Origin: *', 'Access-Control-Allow-Credentials: true'],
    ['Access-Control-Allow-Origin: *', 'Access-Control-Allow-Credentials: true', 'Vary: Origin'],
  ],
])('adds only Vary for an origin that is not allowed: %s', (lines, expected) => {
  expect(added(lines, refused)).toEqual(expected)
})
