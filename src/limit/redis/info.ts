/**
 * Part of `maxmemory` that must be free before a Redis that was full decides again. Without it,
 * each key that expires would end the outage until the next few calls.
 */
const MIN_FREE = 0.01

/** Returns a field of INFO. */
export const infoField = (info: string, name: string) => new RegExp(`^${name}:(.*)`, 'm').exec(info)?.[1]

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
