import { z } from 'zod'
import { mustBe } from '../yaml/issue.ts'
import { fetchedUrl } from './addresses.ts'
import { coerced, section, stringThat } from './values.ts'

const ratioWording = mustBe('a number from 0 to 1, such as 0.01')
const ratio = coerced(z.number(ratioWording).min(0, ratioWording).max(1, ratioWording))

const fieldName = z.string().regex(/^[\w!#$%&'*+.^`|~-]+$/, {
  error: 'is not a name of a header field; write one such as authorization',
})
const fieldValue = stringThat(
  (value) => /^[!-~](?:[ -~]*[!-~])?$/.test(value),
  'the value of a header field, of printable ASCII without blanks around it',
)

export const tracing = section({
  endpoint: fetchedUrl(
    'the URL of an OTLP/HTTP receiver, such as http://otel-collector:4318/v1/traces',
  ).describe('Where spans are posted to, by OTLP/HTTP in JSON; the whole URL.'),
  sampleRatio: ratio
    .prefault(0.01)
    .describe(
      'The part of requests that are traced; one with a traceparent of a trusted proxy follows its sampled flag.',
    ),
  headers: z
    .record(fieldName, fieldValue, mustBe('a mapping of header fields to their values'))
    .default({})
    .describe('Header fields to send, such as authorization; file:/path reads a value from a file.'),
}).describe('Traces of requests by OpenTelemetry; none by default. A change needs a restart.')
