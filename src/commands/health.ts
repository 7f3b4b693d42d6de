import { findAdmin, request } from './admin-client.ts'
import type { Args } from './args.ts'
import { type Io, writeLines } from './io.ts'

/** Container engines wait three seconds or more. */
const TIMEOUT_MS = 2000

/**
 * Runs `sluice health`: prints the response to `/healthz`, or with `--ready` to `/readyz`; rejects
 * unless it is a 200.
 */
export async function run(args: Args, io: Io, timeoutMs = TIMEOUT_MS): Promise<void> {
  const admin = await findAdmin(args, io)
  const path = args['ready'] === true ? '/readyz' : '/healthz'
  // Sends no secret, and an expired certificate is no reason to restart a container: not verified.
  const tls = { ...admin.tls, rejectUnauthorized: false }
  const { status, text } = await request({ ...admin, tls, token: undefined }, path, { timeoutMs })
  const answer = text.slice(0, 500).trim().replaceAll(/\s+/g, ' ')
  if (status !== 200) throw new Error(`${admin.url} answers ${status}: ${answer}`)
  writeLines(io.stdout, args['json'] === true ? JSON.stringify({ status, answer }) : answer)
}
