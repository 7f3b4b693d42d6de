import { spawn } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { closeLater } from './closing.ts'
import { createFolder } from './folder.ts'
import { withTests } from './process.ts'
import { freePort } from './ports.ts'
import { makeCertificate } from './self-signed.ts'
import { until } from './wait.ts'

/** Starts HAProxy with a configuration, in a folder with the certificate `gateway.pem`. `PORT` in it is replaced by its port. */
export async function startHaproxy(text: string): Promise<{ readonly port: number }> {
  const folder = createFolder()
  const { cert, key } = makeCertificate()
  writeFileSync(join(folder, 'gateway.pem'), cert + key)
  const port = await freePort()
  writeFileSync(join(folder, 'haproxy.cfg'), text.replaceAll('PORT', String(port)))
  const child = withTests(
    spawn('haproxy', ['-f', 'haproxy.cfg'], { cwd: folder, stdio: ['ignore', 'pipe', 'pipe'] }),
  )
  closeLater(() => child.kill('SIGKILL'))
  let output = ''
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk: Buffer) => (output += chunk.toString()))
  let failure: Error | undefined
  child.once('error', (cause) => (failure = new Error('haproxy is missing; run npm run setup', { cause })))
  await until('haproxy serves', () => {
    if (failure !== undefined) throw failure
    if (child.exitCode !== null) throw new Error(output)
    return fetch(`http://127.0.0.1:${port}/`).then(Boolean, () => false)
  })
  if (output.includes('[WARNING]')) throw new Error(output)
  return { port }
}
