import type { Piece } from '../../config/pieces.ts'
import type { Config } from '../../config/schema.ts'
import type { ClientUsage } from '../../limit/usage.ts'
import type { MetricValues } from '../../observe/metrics-sum.ts'
import type { DrainTimes } from './service.ts'

/** What the first process asks its workers: what it tells with a question, and what it is answered. */
export interface Questions {
  /** To keep clients for the next `start` or `apply`, whose configuration has none. */
  clients: [Piece, void]
  /** To serve; answered with the address. */
  start: [Config, string]
  unready: [undefined, string | undefined]
  apply: [Config, void]
  metrics: [undefined, MetricValues]
  usage: [string, ClientUsage]
  reset: [string, number]
  forget: [undefined, void]
  /** To end the scan under way for `usage` or `reset`: its asker has left. */
  abort: [undefined, void]
  /** To end; answered with how many requests had to be cut. */
  close: [DrainTimes, number]
}

export type Question = keyof Questions

/** A question on its way; the number tells its answer from others. */
export interface Asked {
  readonly id: number
  readonly question: Question
  readonly told: unknown
}

/** What a worker says first, which answers nothing: that it listens. */
export const LISTENS: Answered = { id: 0, answer: undefined }

/** An answer on its way; of a failure its name and message are all that travels. */
export type Answered =
  | { readonly id: number; readonly answer: unknown }
  | { readonly id: number; readonly failure: { readonly name: string; readonly message: string } }

/** How a worker answers each question. */
export type Answers = {
  readonly [Q in Question]: (told: Questions[Q][0]) => Questions[Q][1] | Promise<Questions[Q][1]>
}
