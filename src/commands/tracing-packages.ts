import { ConfigError } from '../config/yaml/issue.ts'
import type { Loaded } from '../config/load.ts'
import { PEERS } from '../runtime/package.ts'

const PACKAGES = Object.entries(PEERS).filter(([name]) => name.startsWith('@opentelemetry/'))

/**
 * Throws a ConfigError if a configuration traces without the packages for it, which are half of all
 * and are not installed with Sluice.
 */
export function assertTracingPackages({ config, file }: Loaded): void {
  if (config.tracing === undefined) return
  try {
    for (const [name] of PACKAGES) import.meta.resolve(name)
  } catch {
    const install = ['npm install', ...PACKAGES.map((peer) => peer.join('@'))].join(' ')
    const message = `needs packages; run "${install}", with --global if Sluice is installed so`
    throw new ConfigError([{ where: file, path: 'tracing', message }])
  }
}
