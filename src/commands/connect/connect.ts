import pLimit from 'p-limit'
import type { Config } from '../../config/compile.ts'
import { problemLine } from '../../config/yaml/issue.ts'
import { formatTable } from '../format.ts'
import { type Args, type Io, print } from '../io.ts'
import { certificateFindings, type Finding, probesOf, TIMEOUT_MS } from './probes.ts'
import { redisProbe } from './redis.ts'

/** Maximum concurrent probes: each of 10,000 clients may have a key set of its own. */
const MAX_CONCURRENT = 32

/** Tries every server that a configuration names, and prints a line for each. Returns the exit code: 1 if one of them failed. */
export async function run(config: Config, args: Args, io: Io): Promise<number> {
  const probes = [redisProbe(config), ...probesOf(config)].map((probe) => async () => {
    const startedAt = performance.now()
    const findings = [await probe()].flat()
    const ms = Math.round(performance.now() - startedAt)
    return findings.map((finding) => ({ ...finding, ms }))
  })
  const limit = pLimit(MAX_CONCURRENT)
  const tried = await Promise.all(probes.map((probe) => limit(probe)))
  const certificates = certificateFindings(config, Date.now())
  const checks: readonly Finding[] = [...tried.flat(), ...certificates]
  const reported = new Set(certificates.map(({ what }) => what))
  const warnings = config.warnings.filter(({ path }) => !reported.has(`certificate ${path}`))
  const ok = checks.every(({ state }) => state !== 'failed')
  print(io, args, { ok, checks, warnings }, () =>
    formatTable([
      ...checks.map(({ state, what, message, ms }) => [
        state,
        what,
        ms === undefined ? null : duration(ms),
        message,
      ]),
      ...warnings.map((warning) => ['warning', 'configuration', null, problemLine(warning)]),
    ]),
  )
  return ok ? 0 : 1
}

const duration = (ms: number): string => (ms > TIMEOUT_MS / 2 ? `${ms} ms, slow` : `${ms} ms`)
