const KEPT_BYTES = 8 * 1024 ** 2

/**
 * Makes glibc keep up to twice `KEPT_BYTES` of freed memory: freeing an mmapped block raises the
 * dynamic trim threshold to twice its size (mallopt(3), M_MMAP_THRESHOLD). Without it, malloc
 * returns the buffers of each large response to the kernel, and the page faults took up to half
 * of the processor time of 1 MB responses. Setting the thresholds would disable this.
 */
export function keepFreedMemory(): void {
  Buffer.allocUnsafeSlow(KEPT_BYTES)
}
