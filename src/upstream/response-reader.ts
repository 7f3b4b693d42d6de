/** Reads a response while it is streamed, and changes nothing of its body. */
export interface ResponseReader {
  /**
   * Reads the head before it is sent; `rawHeaders` are its fields as a flat list of names and values.
   * Returns the fields of limits in place of those that the response would get, as text for
   * `appendFields`; undefined to leave these.
   */
  readHead(status: number, rawHeaders: readonly string[], isBodiless: boolean): string | undefined
  readChunk(chunk: Buffer): void
}
