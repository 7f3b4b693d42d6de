import type { Socket } from 'node:net'

/** Maximum time for which a response is read after a failed write, in milliseconds. */
const READ_MS = 1000

type Done = (error?: Error | null) => void

/**
 * Keeps a socket open for reading after a failed write, while `isUpload` is true: an upstream that
 * refuses an upload closes its connection before it has read the body, so that a write fails (EPIPE)
 * while its response is still to be read. Node.js would destroy the socket and drop the response. The
 * failed write ends only after `READ_MS`; until then, it holds back the rest of the body. The end of
 * the response, or that of the connection, comes first: both have arrived with the reset.
 */
export function readAfterFailedWrites(socket: Socket, isUpload: () => boolean): void {
  const { _write: write, _writev: writev } = socket
  const delayed = (done: Done): Done => {
    return (error) => {
      if (!error) return done()
      const timer = setTimeout(done, READ_MS, error)
      socket.once('close', () => clearTimeout(timer))
    }
  }
  socket._write = (chunk, encoding, done) =>
    write.call(socket, chunk, encoding, isUpload() ? delayed(done) : done)
  if (writev)
    socket._writev = (chunks, done) => writev.call(socket, chunks, isUpload() ? delayed(done) : done)
}
