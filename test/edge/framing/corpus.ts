import { chunks } from './chunks.ts'
import { codings } from './codings.ts'
import { heads } from './heads.ts'
import { lengths } from './lengths.ts'
import { bodiless, methods } from './methods.ts'
import { pushes } from './pushes.ts'
import { expectations, sockets } from './sockets.ts'
import type { Framing } from './wire.ts'

/** Framings that servers are known to parse differently, and similar valid ones. */
export const FRAMINGS: readonly Framing[] = [
  ...lengths,
  ...codings,
  ...chunks,
  ...heads,
  ...bodiless,
  ...methods,
  ...expectations,
  ...sockets,
  ...pushes,
]
