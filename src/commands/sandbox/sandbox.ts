import type { SandboxOptions } from './stage.ts'

/**
 * Serves everything in this process: an OpenID Provider, a Data API, and the gateway before them. Says how to try it out;
 * SIGINT and SIGTERM end all of it, and the process with 0. Rejects with words for the operator where something is in the way.
 */
export async function runSandbox(options: SandboxOptions): Promise<void> {
  const ending = new AbortController()
  const end = (): void => ending.abort()
  process.once('SIGINT', end).once('SIGTERM', end)
  // Loaded after that, so that a signal counts from the first moment on.
  const { openStage } = await import('./stage.ts')
  const stage = await openStage(options, ending.signal)
  if (stage.instructions !== undefined) process.stdout.write(stage.instructions)
  if (!ending.signal.aborted) {
    await new Promise((resolve) => ending.signal.addEventListener('abort', resolve))
  }
  await stage.close()
  process.exit(0)
}
