import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { beforeAll, describe, expect, it } from 'vitest'
import { openSandbox } from '../../src/commands/sandbox/sandbox.ts'
import { createFolder } from '../helpers/folder.ts'
import { call } from '../helpers/gateway.ts'
import { BIN, sluice as startProcess, type TestProcess, without } from '../helpers/process.ts'
import { freePort } from '../helpers/ports.ts'
import { FULL } from '../helpers/runs.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'
import { sluice } from './run.ts'

const run = promisify(execFile)
/** Ports that no other test gets before the gateway listens on them. */
const ports = async () => ({ port: String(await freePort()), 'admin-port': String(await freePort()) })
let sandbox: TestProcess
let printed: string[]
let token: string
let folder: string

/** Runs pasted lines in a user's shell. */
async function bash(script: string): Promise<string> {
  return (await run('bash', ['-c', script], { env: { ...process.env, TOKEN: token }, cwd: folder })).stdout
}

/** Returns the only line of the instructions that begins with `start` and contains `part`. */
function line(start: string, part = ''): string {
  const found = printed.filter((text) => text.startsWith(start) && text.includes(part))
  expect(found, `${start} … ${part}`).toHaveLength(1)
  return found[0]!
}

const statusesIn = (text: string): string[] =>
  [...text.matchAll(/^HTTP\/1\.1 (\d{3})/gm)].map((match) => match[1]!)

beforeAll(async () => {
  folder = createFolder()
  token = ''
  const { port, 'admin-port': adminPort } = await ports()
  sandbox = startProcess(['sandbox', '--port', port, '--admin-port', adminPort, '--limit', '5'])
  await until(
    'the instructions',
    () => {
      if (sandbox.child.exitCode !== null) throw new Error(`it ended: ${sandbox.stderr()}`)
      return sandbox.stdout().includes('limits top')
    },
    25_000,
  )
  printed = sandbox.stdout().split('\n')
})

describe('sluice sandbox', () => {
  it('first prints the address of each server', async () => {
    expect(sandbox.stdout()).toMatch(/^\nSluice's sandbox\n/)
    expect(sandbox.stderr()).toBe('')
    expect(sandbox.stdout()).toContain("The rest of the client's 5 calls a minute: 200 until")
    const addresses = printed.flatMap((text) => /^ {2}(http:\S+)/.exec(text)?.[1] ?? [])
    expect(addresses).toHaveLength(4)
    for (const address of addresses) expect((await fetch(address)).status).toBeGreaterThan(0)
  })

  it('returns a token to the pasted command', async () => {
    token = await bash(`${line('TOKEN=')}; printf %s "$TOKEN"`)
    expect(token).toMatch(/^[\w-]+\.[\w-]+\.[\w-]+$/)
  })

  it('answers the pasted call with the remaining calls', async () => {
    const answer = await bash(line('curl -i -H "Auth', 'limit=2'))
    expect(statusesIn(answer)).toEqual(['200'])
    expect(answer).toMatch(/^X-RateLimit-Limit: 5\r$/m)
    expect(answer).toMatch(/^X-RateLimit-Remaining: 4\r$/m)
    const body = JSON.parse(answer.slice(answer.indexOf('\r\n\r\n'))) as { data: unknown[] }
    expect(body.data).toHaveLength(2)
  })

  it('answers the pasted call with a key as often as the plan of its customer says', async () => {
    const pasted = line('curl', "'X-Api-Key: slk_")
    const first = await bash(pasted)
    expect(statusesIn(first)).toEqual(['200'])
    expect(first).toMatch(/^X-RateLimit-Limit: 3\r$/m)
    expect(first).toMatch(/^X-RateLimit-Remaining: 2\r$/m)
    const others = await bash(`${pasted}\n`.repeat(3))
    expect(statusesIn(others)).toEqual(['200', '200', '429'])
    // The last digit is of the checksum.
    const mistyped = pasted.replace(/(?<=slk_\w{38})\w/, (digit) => (digit === 'a' ? 'b' : 'a'))
    expect(statusesIn(await bash(mistyped))).toEqual(['401'])
    // The key is only on the output, once.
    const [key = ''] = /slk_\w+/.exec(pasted) ?? []
    expect(sandbox.stdout().split(key)).toHaveLength(2)
  })

  it('syncs once, and refuses the pasted repetition with 429', async () => {
    const first = await bash(line('curl', '/sync/'))
    expect(statusesIn(first)).toEqual(['200'])
    expect(first).toContain('"status":"ok"')
    const again = await bash(line('for', '/sync/'))
    expect(statusesIn(again)).toHaveLength(2)
    expect(statusesIn(again).at(-1)).toBe('429')
    expect(again).toContain('"code":"TooManyRequests"')
    expect(again).toMatch(/^X-RateLimit-Limit: 1\r$/m)
  })

  it('pushes an authorisation request, and redirects the user after the login to the client', async () => {
    const url = (await bash(`${line('REQUEST_URI=')}\n${line('echo')}`)).trim()
    expect(url).toContain('request_uri=urn:ietf:params:oauth:request_uri:')
    const jar = '-c jar -b jar'
    const page = await bash(`curl -s -L ${jar} '${url}'`)
    const action = /action="([^"]+)"/.exec(page)?.[1]
    expect(page).toContain('accounts:read transactions:read')
    const form = '-d prompt=login -d login=ada -d password=any'
    const end = await bash(`curl -s -L ${jar} ${form} '${new URL(action!, url).href}'`)
    expect(end).toMatch(/^code: [\w-]+$/m)
    expect(end).toMatch(/^state: a-state$/m)
  })

  it('answers the pasted request for the remaining calls', async () => {
    const answer = await bash(line('curl', '/rate-limits'))
    expect(JSON.parse(answer)).toMatchObject({ limits: [{ name: 'requests', limit: 5, windowSeconds: 60 }] })
  })

  it('uses up the rest of the client’s limit', async () => {
    const counts = (await bash(line('curl', 'call=[1-6]'))).trim().split(/\s+/)
    expect(counts.filter((_, i) => i % 2 === 1)).toEqual(['200', '429'])
    expect(Number(counts[0]) + Number(counts[2])).toBe(6)
  })

  it('shows the operator the client with the pasted commands', async () => {
    const shown = await bash(line(BIN, ' limits show '))
    expect(shown).toMatch(/^sluice:\{sandbox\}:requests +requests +5 /m)
    expect(await bash(line(BIN, ' explain '))).toMatch(
      /^refused +now +by the limit "requests": 5 of 5 calls are used$/m,
    )
    // Without a terminal, it shows them once.
    expect(await bash(line(BIN, ' limits top '))).toMatch(/^client:sandbox /m)
  })

  it.runIf(FULL)(
    'reports in one line which package to install if the optional provider is missing',
    async () => {
      const lacking = startProcess(['sandbox', '--port', '0'], without('oidc-provider'))
      expect(await lacking.ended()).toBe(1)
      expect(lacking.stderr()).toMatch(
        /^[^\n]*The sandbox needs a package\. Install it, with --global if Sluice is installed so: npm install oidc-provider@9\n$/,
      )
      expect(lacking.stdout()).toBe('')
    },
  )

  it('reports in one line that a port is in use', async () => {
    const port = String((await startUpstream()).port)
    expect(await sluice(['sandbox', '--port', port, '--admin-port', '0'])).toEqual({
      code: 1,
      stdout: '',
      stderr: `sluice: Port ${port} is in use. Choose another --port (0: any), or --host.\n`,
    })
  })

  it('logs no requests after its instructions; limits show works', async () => {
    const admin = /^ {2}(http:\S+) +the console/m.exec(sandbox.stdout())![1]!
    expect(sandbox.stdout()).not.toContain('"msg"')
    expect(sandbox.stdout().trimEnd()).toBe(printed.join('\n').trimEnd())
    const shown = await sluice(['limits', 'show', 'sandbox', '--admin', admin])
    expect(shown).toMatchObject({ code: 0, stdout: expect.stringContaining('sluice:{sandbox}:requests') })
  })

  it('exits with everything that it started', async () => {
    const addresses = printed.flatMap((text) => /^ {2}(http:\S+)/.exec(text)?.[1] ?? [])
    sandbox.kill('SIGINT')
    expect(await sandbox.ended()).toBe(0)
    for (const address of addresses) await expect(fetch(address)).rejects.toThrow('fetch failed')
    expect(sandbox.stderr()).toBe('')
  })
})

describe('starting the sandbox', () => {
  const args = {
    host: '127.0.0.1',
    port: '0',
    'admin-port': '0',
    'identity-port': '0',
    'data-port': '0',
    'log-level': 'warn',
    limit: '1000',
  }

  it('sends load with --load, whose callers and refusals the console shows', async () => {
    const ending = new AbortController()
    const { instructions, close } = await openSandbox(
      { ...args, ...(await ports()), load: true },
      ending.signal,
    )
    const [, admin] = /^ {2}(http:\S+) +the console/m.exec(instructions)!
    await until('a refusal', async () => {
      const { activity } = (await (await fetch(`${admin}/overview`)).json()) as {
        activity: { callers: { refusals: number }[] }
      }
      return activity.callers.length > 3 && activity.callers.some(({ refusals }) => refusals > 0)
    })
    expect(instructions).toContain('the console')
    ending.abort()
    await close()
  })

  it('prints URLs with the host that callers use, including the issuer, and hints at a lower limit', async () => {
    const named = { ...args, ...(await ports()), host: 'sandbox.example.com' }
    const { instructions, close } = await openSandbox(named, new AbortController().signal)
    expect(instructions).toContain('1000 calls a minute (sooner with --limit 5): 200 until')
    const [, port, issuer] = /^ +http:\/\/sandbox\.example\.com:(\d+) +the gateway; (\S+) is the/m.exec(
      instructions,
    )!
    expect(issuer).toBe(`http://sandbox.example.com:${port}/oidc`)
    expect(instructions).not.toContain('localhost')
    const headers = { Host: `sandbox.example.com:${port}` }
    const { json } = await call(Number(port), { path: '/oidc/.well-known/openid-configuration', headers })
    expect(json).toMatchObject({ issuer, token_endpoint: `${issuer}/token` })
    await close()
  })

  it('reports an address of another machine, with the remedy', async () => {
    const elsewhere = openSandbox({ ...args, host: '198.51.100.7' }, new AbortController().signal)
    await expect(elsewhere).rejects.toThrow(/ cannot be opened: .*198\.51\.100\.7.* or --host\.$/)
    expect(await sluice(['sandbox', '--host', 'http://a'])).toMatchObject({
      code: 64,
      stderr: expect.stringContaining('--host: "http://a" is not an address or host name'),
    })
  })

  it('rejects if a port is taken', async () => {
    const { port } = await startUpstream()
    await expect(
      openSandbox({ ...args, 'data-port': String(port) }, new AbortController().signal),
    ).rejects.toThrow(`Port ${port} is in use. Choose another --data-port (0: any), or --host.`)
  })
})
