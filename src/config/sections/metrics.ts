import { z } from 'zod'
import { mustBe } from '../yaml/issue.ts'
import { choice, section, stringThat } from './values.ts'

export const metrics = section({ clients: choice(['none', 'listed']).default('none') })

const MAX_NAME = 64
const NAME = 'lower-case letters, digits, "-" and "_", a letter first (64 at most)'
/** The route of requests that no route matches. */
const UNMATCHED = 'unmatched'

function checkName(name: string): boolean | string {
  if (name === UNMATCHED) return 'is the name of requests that no route matches; write another'
  return name.length <= MAX_NAME && /^[a-z][a-z0-9_-]*$/.test(name)
}

/** The name of a route in metrics, spans and the log. */
export const routeName = stringThat(checkName, NAME)

/** Labels that the gateway's series have, and that Prometheus gives or reads. */
const RESERVED = new Set(
  ['route', 'method', 'code', 'source', 'upstream', 'client', 'le'].concat([
    'quantile',
    'job',
    'instance',
    'trace_id',
  ]),
)

/** Names that Prometheus accepts (data model, "Metric names and labels"): two "_" at the start are its own. */
const LABEL = /^(?!__)[A-Za-z_][A-Za-z0-9_]{0,63}$/
const VALUE = /^[^\p{Cc}\p{Cf}\p{Cs}\u2028\u2029]{1,64}$/u
const MAX_LABELS = 8

const labelName = z.string().superRefine((name, context) => {
  const report = (message: string) => context.addIssue({ code: 'custom', message })
  if (RESERVED.has(name)) report('is a label of the gateway or of Prometheus; write another name')
  else if (!LABEL.test(name))
    report(
      'is not a label; write letters, digits and "_", no digit first, without "__" at the start (64 at most)',
    )
})
const labelValue = stringThat((value) => VALUE.test(value), 'a text of 1 to 64 visible characters')

/** The labels of a route's series. */
export const routeLabels = z
  .record(labelName, labelValue, mustBe('a mapping of labels to texts, such as { team: payments }'))
  .refine((labels) => Object.keys(labels).length <= MAX_LABELS, {
    error: `has more than ${MAX_LABELS} labels; remove some`,
  })
