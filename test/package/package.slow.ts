import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, it } from 'vitest'
import { createFolder } from '../helpers/folder.ts'
import { withTests } from '../helpers/process.ts'
import { freePort } from '../helpers/ports.ts'
import { REPOSITORY } from '../helpers/repository.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const run = promisify(execFile)
const folder = createFolder()
const packed = join(folder, 'lib/node_modules/sluice')
const elsewhere = join(folder, 'elsewhere')
const env: NodeJS.ProcessEnv = { ...process.env, PATH: `${folder}/bin:${process.env['PATH']}` }
// Variables of `npm test` would make npm act on the repository.
for (const name of Object.keys(env))
  if (/^(?:npm_|SLUICE_|NODE_(?!EXTRA_CA_CERTS))/.test(name)) delete env[name]

const npm = async (cwd: string, ...args: string[]) => (await run('npm', args, { cwd, env })).stdout
/** Runs a line in a user's shell, in a folder that is not the repository. */
const shell = async (line: string) => (await run('bash', ['-c', line], { cwd: elsewhere, env })).stdout

/** Starts the installed program, and waits for a text in its output. */
async function started(args: readonly string[], text: string) {
  const child = withTests(spawn(join(folder, 'bin/sluice'), args, { cwd: elsewhere, env }))
  let output = ''
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk: Buffer) => (output += String(chunk)))
  await until(text, () => {
    if (child.exitCode !== null) throw new Error(`it ended: ${output}`)
    return output.includes(text)
  })
  const stop = async (): Promise<number> => {
    const ended = once(child, 'exit')
    child.kill('SIGINT')
    return (await ended)[0] as number
  }
  return { output, stop }
}

mkdirSync(elsewhere)
// Without scripts: `prepack` would build again, while other tests use the build.
const [{ filename }] = JSON.parse(
  await npm(REPOSITORY, 'pack', '--ignore-scripts', '--json', '--pack-destination', folder),
) as [{ filename: string }]
const flags = ['--global', '--prefix', folder, '--prefer-offline', '--no-audit', '--no-fund']
await npm(elsewhere, 'install', ...flags, join(folder, filename))

describe('the package', () => {
  it('the package is a program on PATH after its installation', async () => {
    const { version } = JSON.parse(readFileSync(join(REPOSITORY, 'package.json'), 'utf8')) as {
      version: string
    }
    expect(await shell('sluice --version')).toMatch(
      new RegExp(`^${version} \\(commit [0-9a-f]{40}(?:-dirty)?\\)\n$`),
    )
  })

  it('names the package that the sandbox needs, with which its pasted call is answered with 200', async () => {
    const { stderr } = await run('bash', ['-c', 'sluice sandbox || true'], { cwd: elsewhere, env })
    const [, name] = /with --global if Sluice is installed so: npm install (\S+)$/m.exec(stderr)!
    await npm(elsewhere, 'install', ...flags, name!)
    const { output, stop } = await started(
      ['sandbox', '--port', '0', '--admin-port', '0'],
      'until the limit is used up',
    )
    const lines = output.split('\n')
    const token = lines.find((line) => line.startsWith('TOKEN='))!
    const call = lines.find((line) => line.startsWith('curl -i') && line.includes('$TOKEN'))!
    expect(await shell(`${token}\n${call.replace('curl', 'curl -s')}`)).toMatch(/^HTTP\/1\.1 200 OK\r\n/)
    expect(await stop()).toBe(0)
  })

  it('writes, checks and serves a configuration, and explains a refusal', async () => {
    const upstream = await startUpstream()
    await shell(`sluice init --for api --data ${upstream.url} --redis memory`)
    const file = join(elsewhere, 'sluice.yaml')
    writeFileSync(file, readFileSync(file, 'utf8').replaceAll('limit: 1000', 'limit: 1'))
    expect(await shell('sluice check')).toContain('sluice.yaml is valid, with 0 warnings')

    const [port, adminPort] = await Promise.all([freePort(), freePort()])
    const flags = ['start', '--port', String(port), '--admin-port', String(adminPort)]
    const { stop } = await started(flags, 'gateway started')
    const status = () => shell(`curl -s -o body -w '%{http_code}' http://127.0.0.1:${port}/accounts`)
    expect([await status(), await status()]).toEqual(['200', '429'])
    const admin = `--admin http://127.0.0.1:${adminPort}`
    const explained = await shell(`sluice explain "GET /accounts" --ip 127.0.0.1 ${admin}`)
    expect(explained).toMatch(/^requests +1 +1 +1m +live +sluice:\{127\.0\.0\.1\}:requests /m)
    expect(await stop()).toBe(0)
  })

  it('contains every file that its documents link to', () => {
    const documents = readdirSync(packed, { recursive: true, encoding: 'utf8' }).filter(
      (name) => name.endsWith('.md') && !name.includes('node_modules'),
    )
    expect(documents).toEqual(expect.arrayContaining(['README.md', 'docs/operating.md', 'SECURITY.md']))
    const missing = documents.flatMap((name) =>
      [...readFileSync(join(packed, name), 'utf8').matchAll(/\]\(([^)\s#]+)[^)]*\)/g)]
        .map(([, target]) => target!)
        .filter((target) => !/^https?:/.test(target) && !existsSync(join(packed, name, '..', target)))
        .map((target) => `${name}: ${target}`),
    )
    expect(missing).toEqual([])
  })

  it('contains the known weaknesses of http-proxy (VEX) and the licence', () => {
    for (const name of ['security/http-proxy.vex.json', 'LICENSE'])
      expect(existsSync(join(packed, name)), name).toBe(true)
  })

  it('contains no secrets, no tests and no sources but the script of Redis', () => {
    const names = readdirSync(packed, { recursive: true, encoding: 'utf8' }).filter(
      (name) => !name.startsWith('node_modules'),
    )
    expect(names.filter((name) => /(?:^test\/|\.ts$|\.pem$|\.key$|(?:^|\/)\.env$)/.test(name))).toEqual([])
  })

  it('needs no package that only development installs', () => {
    const { devDependencies } = JSON.parse(readFileSync(join(REPOSITORY, 'package.json'), 'utf8')) as {
      devDependencies: Record<string, string>
    }
    const installed = new Set(
      readdirSync(join(packed, 'node_modules')).flatMap((name) =>
        name.startsWith('@')
          ? readdirSync(join(packed, 'node_modules', name)).map((inner) => `${name}/${inner}`)
          : name,
      ),
    )
    // prom-client needs the smallest package of OpenTelemetry.
    installed.delete('@opentelemetry/api')
    expect(Object.keys(devDependencies).filter((name) => installed.has(name))).toEqual([])
  })
})
