import { createServer } from 'node:net'

/** Ports below the system's ephemeral ports, divided among the processes of a test run. */
const SHARES = 16
const SHARE = Math.floor((32_000 - 10_000) / SHARES)
const FIRST_PORT = 10_000 + (Number(process.env['VITEST_POOL_ID'] ?? 0) % SHARES) * SHARE
let nextPort = FIRST_PORT + Math.floor(Math.random() * SHARE)

/** Returns a TCP port that is free now; this process returns each port only once. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = nextPort++
    if (nextPort >= FIRST_PORT + SHARE) nextPort = FIRST_PORT
    const server = createServer()
    const isFree = await new Promise<boolean>((resolve) => {
      server.once('error', () => resolve(false)).listen(port, '127.0.0.1', () => resolve(true))
    })
    if (!isFree) continue
    await new Promise((resolve) => {
      server.close(resolve)
    })
    return port
  }
}

/**
 * Returns the URL of a server that refuses connections. The port of a server that was closed would not do: the system
 * gives it to the next server, which may be that of another test.
 */
export const deadUrl = async (): Promise<string> => `http://127.0.0.1:${await freePort()}`
