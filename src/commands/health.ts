import { findAdmin, request, shortened } from './ask-admin.ts'
import { type Args, type Io, writeLines } from './io.ts'

/** Longest that a gateway may take to answer; container engines wait three seconds or more. */
const TIMEOUT_MS = 2000

/** Prints what a running gateway answers at `/healthz`, or with `--ready` at `/readyz`; throws unless that is 200. */
export async function run(args: Args, io: Io, timeoutMs = TIMEOUT_MS): Promise<void> {
  const admin = await findAdmin(args, io)
  const path = args['ready'] === true ? '/readyz' : '/healthz'
  const { status, text } = await request({ ...admin, token: undefined }, path, { timeoutMs })
  const answer = shortened(text)
  if (status !== 200) throw new Error(`${admin.url} answers ${status}: ${answer}`)
  writeLines(io.stdout, args['json'] === true ? JSON.stringify({ status, answer }) : answer)
}
