/** Far above the buffers of a socket, and little of the process's memory. */
const KEPT_BYTES = 8 * 1024 ** 2

/**
 * Has glibc's malloc keep up to twice `KEPT_BYTES` that was freed: it keeps as much as the largest mapped block that was ever
 * freed, and a process that freed none gives the buffers of every big answer back to the kernel, and fetches them again page by page.
 * This took up to half of the processor time of answers of 1 MB. Setting malloc's own thresholds would switch this rule off.
 */
export function keepFreedMemory(): void {
  // Freed when it is collected; the kernel never has to fill it.
  Buffer.allocUnsafeSlow(KEPT_BYTES)
}
