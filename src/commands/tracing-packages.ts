import { ConfigError } from '../config/yaml/issue.ts'
import type { Loaded } from '../config/load.ts'
import { PEERS } from '../runtime/package.ts'

/** Throws a ConfigError if a configuration traces without the packages for it, which are half of all and are not installed with Sluice. */
export function assertTracingPackages({ config, file }: Loaded): void {
  if (config.tracing === undefined) return
  try {
    for (const name of Object.keys(PEERS)) import.meta.resolve(name)
  } catch {
    const packages = Object.entries(PEERS).map((peer) => peer.join('@'))
    const remedy = `run "npm install ${packages.join(' ')}", with --global if Sluice is installed so`
    const message = `needs packages that are not installed; ${remedy}`
    throw new ConfigError([{ where: file, path: 'tracing', message }])
  }
}
