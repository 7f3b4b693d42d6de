import { z } from 'zod'
import { mustBe } from '../yaml/issue.ts'
import { clientIdIssue } from './client-id.ts'
import { calls } from './limit-values.ts'
import { fieldIssue } from './texts.ts'
import { bool, section, stringThat, text, writtenInstant } from './values.ts'

/** Schema of the API keys' section; `file` is not resolved yet. */
export const keys = section({
  field: stringThat(fieldIssue, 'the name of a header field such as X-Api-Key').default('X-Api-Key'),
  file: text('the path of the file with the hashes of the keys, such as keys.yaml'),
  forward: bool.prefault(false),
})

/** Matches a SHA-256 in hex, as several programs write it. */
const SHA256 = /^[0-9a-f]{64}$/i
const hash = stringThat(
  (written) => SHA256.test(written),
  'the SHA-256 of a key in 64 hex digits, which "sluice keys create ID --stdin" adds for a key',
).transform((written) => written.toLowerCase())

const client = stringThat(clientIdIssue, 'the id of the client that has the key')

/** Names that claims of tokens may have, too; `none` removes a plan. */
const PLAN = /^(?!none$)[\w.-]{1,64}$/i
export const planName = stringThat(
  (name) => PLAN.test(name),
  'the name of a plan: letters, digits, ".", "-" and "_", and not none',
)

const numbers = z.record(
  z.string(),
  calls,
  mustBe('a mapping of limits to their numbers, such as { requests: 100 }'),
)
/** Schema of plans: by their names, the numbers of limits. */
export const plans = z
  .record(
    z.string().regex(PLAN, { error: 'is not the name of a plan; write letters, digits, ".", "-" and "_"' }),
    numbers,
    mustBe('a mapping of plans'),
  )
  .default({})

/** Schema of an item of the keys' file. */
export const keyItem = section({
  id: client,
  sha256: hash,
  plan: planName.exactOptional(),
  untilAt: writtenInstant.exactOptional(),
}).transform(({ id, ...rest }) => ({ client: id, ...rest }))
