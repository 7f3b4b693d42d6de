import { readFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { dirname, join } from 'node:path'

/** Reads a file of the system; undefined where there is none. */
export type ReadText = (path: string) => string | undefined

const readText: ReadText = (path) => {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return undefined
  }
}

const ROOT = '/sys/fs/cgroup'

/**
 * Returns how many whole cores this process may use, at least 1: those of its CPU affinity, and no more than its cgroup or one
 * around it allows (version 2: `cpu.max`; version 1: `cpu.cfs_quota_us`).
 */
export function usableCores(read = readText, affinity = availableParallelism()): number {
  const groups = (read('/proc/self/cgroup') ?? '').split('\n').map((line) => line.split(':'))
  const unified = pathOf(groups.find(([, controllers]) => controllers === ''))
  const legacy = pathOf(groups.find(([, controllers]) => controllers?.split(',').includes('cpu') === true))
  const quotas = [
    ...around(unified).map((group) => read(join(ROOT, group, 'cpu.max'))?.split(' ')),
    ...around(legacy).map((group) => {
      const file = (name: string) => read(join(ROOT, 'cpu', group, name))
      return [file('cpu.cfs_quota_us'), file('cpu.cfs_period_us')]
    }),
  ]
  // `max` and -1 mean no limit, as does a file that is not there.
  const allowed = quotas.map((quota) => Number(quota?.[0]) / Number(quota?.[1])).filter((cores) => cores > 0)
  return Math.max(1, Math.floor(Math.min(affinity, ...allowed)))
}

/** The path of a line of `/proc/self/cgroup`, which may hold colons. */
const pathOf = (line: readonly string[] | undefined): string => line?.slice(2).join(':') ?? '/'

/** A group and those around it; the root alone where the path leads out of what is mounted, as it may in a container. */
function around(group: string): readonly string[] {
  if (group.includes('/..')) return ['/']
  return group === '/' || group === '.' ? ['/'] : [group, ...around(dirname(group))]
}
