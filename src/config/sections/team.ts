import { z } from 'zod'
import { parsePattern } from '../../downstream/pattern.ts'
import { asList } from '../../runtime/json.ts'
import { issueAt, mustBe } from '../yaml/issue.ts'
import { limitsSection } from './limits.ts'
import { parameters } from './parameters.ts'
import { routes, upstreams } from './routes.ts'
import { servedHost } from './texts.ts'
import { list, section, stringThat, text } from './values.ts'

/**
 * Checks a pattern of names of files: relative to the main file, `*` and `?` are characters of one
 * name.
 */
function globIssue(glob: string): boolean | string {
  if (glob.startsWith('/')) return 'is absolute; write a path relative to this file'
  if (glob.includes('**')) return 'has "**", which means nothing here; write a "*" for each folder'
  return glob !== '' && !glob.endsWith('/')
}

const glob = stringThat(globIssue, 'a pattern such as teams/*.yaml')
const globs = list(glob, 1, 'a list of patterns such as teams/*.yaml')

export const include = z
  .union([glob, globs], mustBe('a pattern such as teams/*.yaml, or a list of patterns'))
  .transform((given) => asList(given))

export const configuration = section({
  keep: text('the path of a file that the gateway may write').optional(),
})

/** Checks the path below which a team has its routes: plain segments, in their only spelling. */
function prefixIssue(prefix: string): boolean | string {
  if (!prefix.startsWith('/')) return 'must begin with "/", such as /payments'
  const pattern = parsePattern(prefix)
  if (typeof pattern === 'string') return `is not a prefix: ${pattern}`
  if (pattern.segments.length === 0) return 'takes every path; write a prefix such as /payments'
  const isPlain = !pattern.rest && pattern.segments.every((segment) => 'literal' in segment)
  return isPlain || 'must be plain segments, without ":name" and "*"'
}

/** The keys of a team's file. */
export const teamSection = section(
  {
    prefix: stringThat(prefixIssue, 'a path such as /payments').optional(),
    host: servedHost.optional(),
    upstreams: upstreams.default([]),
    limits: limitsSection.prefault({}),
    parameters: parameters.default({}),
    routes,
  },
  function* ({ prefix, host }) {
    if (prefix === undefined && host === undefined)
      yield issueAt(
        ['prefix'],
        'is missing; write the path below which the team has its routes, or its "host"',
      )
  },
)
