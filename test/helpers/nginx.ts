import { spawn, spawnSync } from 'node:child_process'
import { cpSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { closeLater } from './closing.ts'
import { createFolder } from './folder.ts'
import { withTests } from './process.ts'
import { freePort } from './ports.ts'
import { until } from './wait.ts'

const TEMPORARY = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((of) => `${of}_temp_path temp;`)

/** Adds temporary folders to a configuration of nginx: those of the package may be missing, and belong to root. */
export const withOwnFolders = (text: string): string =>
  text.replace(/^http {/m, `http {\n${TEMPORARY.join('\n')}`)

export interface Nginx {
  readonly port: number
  close(): void
}

/**
 * Starts nginx with a configuration, in a folder with copies of the files of `beside`. `PORT` in it is replaced by its port.
 * Rejects with the output of `nginx -t` for an invalid configuration.
 */
export async function startNginx(text: string, beside: readonly string[]): Promise<Nginx> {
  const folder = createFolder()
  for (const file of beside) cpSync(file, join(folder, basename(file)))
  const port = await freePort()
  const conf = withOwnFolders(text.replaceAll('PORT', String(port)))
  writeFileSync(join(folder, 'nginx.conf'), `daemon off;\n${conf}`)
  const args = ['-p', folder, '-c', join(folder, 'nginx.conf'), '-e', 'stderr']
  const { error, status, stderr } = spawnSync('nginx', [...args, '-t'], { encoding: 'utf8' })
  if (error !== undefined) throw new Error('nginx is missing; run npm run setup', { cause: error })
  if (status !== 0 || stderr.includes('[warn]')) throw new Error(stderr)
  const child = withTests(spawn('nginx', args, { stdio: 'ignore' }))
  closeLater(() => child.kill('SIGTERM'))
  await until('nginx serves', () => fetch(`http://127.0.0.1:${port}/`).then(Boolean, () => false))
  return { port, close: () => void child.kill('SIGTERM') }
}
