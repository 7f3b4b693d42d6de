import type { Config } from '../../config/schema.ts'
import { problemLine } from '../../config/yaml/issue.ts'
import { formatTable } from '../format.ts'
import { type Args, type Io, print } from '../io.ts'
import { certificateFindings, type Finding, type Probe, TIMEOUT_MS, upstreamProbes } from './probes.ts'
import { clientProbes, issuerProbes } from './issuers.ts'
import { redisProbe } from './redis.ts'

/** Most probes at a time: each of 10,000 clients may have keys elsewhere. */
const MOST_AT_ONCE = 32

/** Tries everything that a configuration names, and prints a line for each. Returns the exit code: 1 if one of them failed. */
export async function run(config: Config, args: Args, io: Io): Promise<number> {
  const certificates = certificateFindings(config, Date.now())
  const checks = [
    ...(await runAll([
      redisProbe(config),
      ...upstreamProbes(config),
      ...issuerProbes(config),
      ...clientProbes(config),
    ])),
    ...certificates,
  ]
  const warnings = config.warnings.filter(({ path }) =>
    certificates.every(({ what }) => what !== `certificate ${path}`),
  )
  const ok = checks.every(({ state }) => state !== 'failed')
  print(io, args, { ok, checks, warnings }, () =>
    formatTable([
      ...checks.map(({ state, what, message, ms }) => [state, what, shownMs(ms), message]),
      ...warnings.map((warning) => ['warning', 'configuration', '-', problemLine(warning)]),
    ]),
  )
  return ok ? 0 : 1
}

/** Marks what took over half of the time that it may take. */
function shownMs(ms: number | undefined): string {
  if (ms === undefined) return '-'
  return ms > TIMEOUT_MS / 2 ? `${ms} ms, slow` : `${ms} ms`
}

/** Runs probes side by side, and returns their findings in the order of the probes. */
async function runAll(probes: readonly Probe[]): Promise<readonly Finding[]> {
  const findings: (readonly Finding[])[] = []
  const queue = probes.entries()
  async function work(): Promise<void> {
    for (const [i, probe] of queue) {
      const startedAt = performance.now()
      const found = await probe()
      const ms = Math.round(performance.now() - startedAt)
      findings[i] = found.map((finding) => ({ ...finding, ms }))
    }
  }
  await Promise.all(Array.from({ length: MOST_AT_ONCE }, work))
  return findings.flat()
}
