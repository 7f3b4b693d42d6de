import { z } from 'zod'
import { isMapping } from '../yaml/places.ts'

const word = z.string().optional().catch(undefined)
const number = z.number().optional().catch(undefined)
const flag = z.boolean().optional().catch(undefined)
const words = z.array(word).catch([])

/** As much of a file as has the right shape, so that one mistake does not keep others from being found. */
export const outline = z.object({
  listen: z
    .object({
      host: word,
      port: number,
      tls: z
        .object({ clientCa: z.unknown().optional(), requestClientCert: flag })
        .optional()
        .catch(undefined),
      headersTimeout: word,
      requestTimeout: word,
    })
    .catch({})
    .default({}),
  admin: z.object({ host: word, port: number }).catch({}).default({}),
  store: z
    .object({ redis: z.looseObject({}).optional().catch(undefined) })
    .catch({})
    .default({}),
  upstreams: z.record(z.string(), z.unknown()).nullable().catch(null),
  tokens: z
    .preprocess(
      (tokens) => (isMapping(tokens) ? [tokens] : tokens),
      z.array(
        z.object({ issuer: word, introspection: z.unknown().optional() }).catch({ introspection: undefined }),
      ),
    )
    .nullable()
    .optional()
    .catch(null),
  par: z.unknown().optional(),
  clients: z
    .array(
      z
        .object({
          id: word,
          issuer: word,
          jwks: z
            .object({ keys: z.array(z.looseObject({}).catch({})) })
            .optional()
            .catch({ keys: [] }),
          jwksUri: z.unknown().optional(),
          limits: z.record(z.string(), z.unknown()).default({}).catch({}),
        })
        .catch({ limits: {} }),
    )
    .default([])
    .catch([]),
  limits: z
    .record(
      z.string(),
      z
        .object({
          per: words.default([]),
          shadow: flag,
          changes: z
            .array(z.object({ announced: word, from: word }).catch({}))
            .default([])
            .catch([]),
        })
        .catch({ per: [], changes: [] }),
    )
    .nullable()
    .default({})
    .catch(null),
  parameters: z.record(z.string(), z.unknown()).default({}).catch({}),
  routes: z
    .array(
      z
        .object({
          match: word,
          upstream: word,
          respond: z.unknown().optional(),
          authenticate: word,
          scope: z.unknown().optional(),
          limits: words.default([]),
          maxBody: z.unknown().optional(),
          timeout: z.unknown().optional(),
        })
        // Not that its upstream is missing too.
        .catch({ upstream: '', limits: [] }),
    )
    .catch([])
    .default([]),
})

/** What the outline of a file says. */
export type Outline = z.output<typeof outline>

/** What the outline says of a limit. */
export type OutlinedLimit = NonNullable<Outline['limits']>[string]

/** What the outline says of a route. */
export type OutlinedRoute = Outline['routes'][number]
