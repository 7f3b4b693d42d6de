import { z } from 'zod'
import { parseObject } from '../../runtime/json.ts'

/** Maximum length of a summary as JSON, in characters. */
const MAX_LENGTH = 1024

const COUNT = z.number().nonnegative()
/** Other programs may write to Redis. */
const SUMMARY = z.object({
  host: z.string(),
  pid: COUNT,
  startedAt: z.iso.datetime(),
  version: z.string(),
  /** The hash of the configuration in force; null without a file. */
  configuration: z.string().nullable(),
  /** The URL of the admin listener for other machines; null if there is none. */
  admin: z.string().nullable(),
  /** Per second: calls, those of them that limits refused, and those with a status of 500 or above. */
  calls: COUNT,
  refused: COUNT,
  failed: COUNT,
  /** The words for what a process of it does without Redis; null if its store is up. */
  outage: z.string().nullable(),
  /** Decisions without Redis since the start. */
  withoutRedis: COUNT,
})

/** The description of a gateway, with its workers, that it sends to the others. */
export type Summary = Readonly<z.infer<typeof SUMMARY>>

/** Parses a summary, and drops fields that only another version has; returns undefined for anything else. */
export const parseSummary = (text: string): Summary | undefined =>
  text.length > MAX_LENGTH ? undefined : SUMMARY.safeParse(parseObject(text)).data
