/**
 * Part of `maxmemory` that must be free before a Redis that was full decides again. Without it,
 * each key that expires would end the outage until the next few calls.
 */
const MIN_FREE = 0.01

/** Returns a field of INFO. */
export const infoField = (info: string, name: string) => new RegExp(`^${name}:(.*)`, 'm').exec(info)?.[1]

/** The oldest version with every command of the store. */
const OLDEST_VERSION = '6.2'

/** Returns the name and the version of a server; forks of Redis also state that of the Redis they are compatible with. */
export function describeServer(info: string): string {
  const valkey = infoField(info, 'valkey_version')?.trim()
  if (valkey !== undefined) return `Valkey ${valkey}`
  const redict = infoField(info, 'redict_version')?.trim()
  if (redict !== undefined) return `Redict ${redict}`
  return `Redis ${infoField(info, 'redis_version')?.trim() ?? 'unknown'}`
}

/** Returns what is wrong with the version of a server; undefined if the store can use it. */
export function versionFault(info: string): string | undefined {
  const version = infoField(info, 'redis_version')?.trim()
  if (version === undefined || version.localeCompare(OLDEST_VERSION, 'en', { numeric: true }) >= 0)
    return undefined
  return `is ${describeServer(info)}, and the store needs ${OLDEST_VERSION} or newer`
}

/** True if Redis refused a write because it is full. Redis 6.2 reports that within a script's error. */
export const isOutOfMemory = ({ message }: Error): boolean => /\bOOM command not allowed\b/.test(message)

/** Throws if INFO of a server shows too little free memory. */
export function assertRoom(info: string): void {
  const bytesOf = (name: string): number => Number(infoField(info, name) ?? 0)
  const max = bytesOf('maxmemory')
  // Redis leaves out the buffers of replicas and of the append-only file.
  const used = bytesOf('used_memory') - bytesOf('mem_not_counted_for_evict')
  if (max > 0 && used > max * (1 - MIN_FREE))
    throw new Error(`Redis is still full: it uses ${used} of ${max} B (maxmemory).`)
}
