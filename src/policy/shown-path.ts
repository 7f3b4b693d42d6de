import type { Pattern } from '../downstream/pattern.ts'
import { foldCase } from '../downstream/target.ts'
import { parametersOf, type Parameters, secretParts } from './parameter-kinds.ts'
import { digestOf, shortenDigest, SHORTENED } from './secret-values.ts'

/** Maximum segments of a path that are shortened; the rest is left out. Each takes up to 3 us. */
const MAX_SHORTENED = 16
/** Length of the end of a short form, which follows the first characters of the value. */
const END_CHARS = 9

/** Returns a canonical path, of the route if one matched, as it may be shown. */
export type ShowPath = (path: string, route?: Pick<Pattern, 'segments'>) => string

/**
 * Creates the function that shortens the secret parameters in paths; undefined if no path has one.
 * Where the route does not say what a segment is, after its pattern or without a route, it also
 * shortens each segment that no pattern names: a misspelt path has secrets, too.
 */
export function createShowPath(
  routes: readonly Pick<Pattern, 'segments'>[],
  parameters: Parameters,
): ShowPath | undefined {
  const secrets = secretParts(parameters)
  if (!routes.flatMap(parametersOf).some((name) => secrets.has(name))) return undefined
  const literals = new Set(
    routes.flatMap(({ segments }) => segments.flatMap((one) => ('literal' in one ? one.literal : []))),
  )

  function isHidden(segment: string, wanted: Pattern['segments'][number] | undefined): boolean {
    if (wanted !== undefined) return 'param' in wanted && secrets.has(wanted.param)
    return segment !== '' && segment !== '*' && !literals.has(foldCase(segment))
  }

  return (path, route) => {
    const isAbsolute = path.startsWith('/')
    const segments = (isAbsolute ? path.slice(1) : path).split('/')
    let shown = ''
    let shortened = 0
    for (const [i, segment] of segments.entries()) {
      shown += i > 0 || isAbsolute ? '/' : ''
      if (!isHidden(segment, route?.segments[i])) shown += segment
      else if (++shortened > MAX_SHORTENED) return shown + SHORTENED
      else shown += shortenSegment(segment)
    }
    return shown
  }
}

/** Shortens a segment, also one whose end was left out, as limits count it. */
function shortenSegment(segment: string): string {
  const isCut = segment.endsWith(SHORTENED)
  const short = shortenDigest(digestOf(foldCase(isCut ? segment.slice(0, -1) : segment)))
  const beginning = encodeURIComponent(short.slice(0, -END_CHARS))
  return `${beginning}${short.slice(-END_CHARS)}${isCut ? SHORTENED : ''}`
}
