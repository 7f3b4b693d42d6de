import { readFileSync } from 'node:fs'
import { Agent } from 'node:http'
import { call } from '../../helpers/gateway.ts'
import { serving, type ServingProcess, type TestProcess } from '../../helpers/process.ts'
import { until } from '../../helpers/wait.ts'

/** Starts a gateway of two workers; `preload` is code that each of its processes runs first. */
export function twoWorkers(file: string, preload: string): Promise<ServingProcess> {
  const NODE_OPTIONS = `--import=data:text/javascript,${encodeURIComponent(preload)}`
  return serving({ file }, ['--workers', '2'], { NODE_OPTIONS })
}

/** Returns the process ids of a gateway's workers. */
export const workersOf = ({ child: { pid } }: TestProcess): number[] =>
  readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').map(Number)

export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

/** Creates the means to observe a gateway of several workers. */
export function controls(gateway: () => ServingProcess) {
  const agent = new Agent({ keepAlive: false })
  const admin = (path: string, method = 'GET') => call(gateway().adminPort, { path, method, agent })
  const logged = (words: string) =>
    gateway()
      .lines()
      .filter(({ msg }) => typeof msg === 'string' && msg.includes(words))
  return {
    admin,
    logged,
    workers: () => workersOf(gateway()),
    /** Waits for another line with these words. */
    async onceLogged(words: string, act: () => void): Promise<void> {
      const before = logged(words).length
      act()
      await until(words, () => logged(words).length > before)
    },
    /** Waits until the metrics match all patterns: a busy worker is shown with its previous values. */
    shows: (...patterns: readonly RegExp[]) =>
      until(`the metrics show ${patterns.join(', ')}`, async () => {
        const { body } = await admin('/metrics')
        return patterns.every((pattern) => pattern.test(body))
      }),
  }
}
