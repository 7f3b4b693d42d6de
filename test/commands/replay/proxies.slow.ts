import { spawn } from 'node:child_process'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { request } from 'node:http'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { beforeAll, describe, expect, it } from 'vitest'
import { closeLater } from '../../helpers/closing.ts'
import { createFolder } from '../../helpers/folder.ts'
import { startLogging } from '../../helpers/gateway.ts'
import { withOwnFolders } from '../../helpers/nginx.ts'
import { withTests } from '../../helpers/process.ts'
import { freePort } from '../../helpers/ports.ts'
import { REPOSITORY } from '../../helpers/repository.ts'
import { startUpstream, type TestUpstream } from '../../helpers/upstream.ts'
import { until } from '../../helpers/wait.ts'
import { dayConfig, figuresOf } from './figures.ts'
import { logFile, replayed } from './logs.ts'

/** With `RECORD=1`, the logs are kept, from which replay.test.ts replays the day without the programs. */
const RECORDED = join(REPOSITORY, 'test/commands/replay/recorded')

/** The calls of a day, in their order: who calls, the method and the target. */
const DAY = [
  ...Array.from({ length: 9 }, (_, n) => [1 + (n % 2), 'GET', `/api/v1/orders/${n}?page=${n}`] as const),
  ...Array.from({ length: 5 }, (_, n) => [1, 'GET', `/api/v1/search?q=a%20"b"&n=${n}`] as const),
  ...Array.from({ length: 3 }, () => [3, 'POST', '/login'] as const),
  [2, 'GET', '/api/%E2%82%AC'],
  [2, 'GET', '/nowhere'],
  [2, 'GET', '/api/../admin'],
  [2, 'DELETE', '/login'],
  [3, 'GET', '/api'],
] as const

async function playDay(port: number): Promise<void> {
  for (const [address, method, path] of DAY)
    await new Promise<void>((resolve, reject) => {
      const options = {
        host: '127.0.0.1',
        port,
        localAddress: `127.0.0.${address}`,
        method,
        path,
        agent: false,
      }
      const call = request(options, (response) => response.resume().once('close', resolve))
      call.once('error', reject).end()
    })
}

interface Proxy {
  readonly command: readonly string[]
  /** Files in its folder; `PORT`, `BACKEND` and `FOLDER` in them are replaced. */
  readonly files: Readonly<Record<string, string>>
  /** The format that is recognised, and one that a user should not have to name. */
  readonly format: string
}

/** Each writes `access.log`, or its standard output into it. */
const PROXIES: Readonly<Record<string, Proxy>> = {
  nginx: {
    command: ['nginx', '-p', 'FOLDER', '-c', 'FOLDER/nginx.conf', '-e', 'stderr'],
    files: {
      'nginx.conf': withOwnFolders(`daemon off;
events {}
pid nginx.pid;
http {
access_log access.log combined;
server { listen 127.0.0.1:PORT; location / { proxy_pass http://BACKEND; } } }`),
    },
    format: 'combined',
  },
  caddy: {
    command: ['caddy', 'run', '--config', 'Caddyfile', '--adapter', 'caddyfile'],
    files: {
      Caddyfile: `{\nadmin off\n}\nhttp://127.0.0.1:PORT {\nlog {\noutput file access.log\n}\nreverse_proxy BACKEND\n}`,
    },
    format: 'caddy',
  },
  haproxy: {
    command: ['haproxy', '-f', 'haproxy.cfg'],
    files: {
      'haproxy.cfg': `global\n log stdout format raw local0\ndefaults\n mode http\n option httplog\n log global\n timeout client 5s\n timeout server 5s\n timeout connect 5s
frontend callers\n bind 127.0.0.1:PORT\n default_backend data\nbackend data\n server one BACKEND\n`,
    },
    format: 'haproxy',
  },
  apache: {
    command: ['/usr/sbin/apache2', '-X', '-d', 'FOLDER', '-f', 'httpd.conf'],
    files: {
      'httpd.conf': `Listen 127.0.0.1:PORT
ServerName api.example.com
PidFile apache.pid
ErrorLog error.log
${['mpm_event', 'authz_core', 'proxy', 'proxy_http'].map((name) => `LoadModule ${name}_module /usr/lib/apache2/modules/mod_${name}.so`).join('\n')}
LogFormat "%h %l %u %t \\"%r\\" %>s %O \\"%{Referer}i\\" \\"%{User-Agent}i\\"" combined
CustomLog access.log combined
AllowEncodedSlashes NoDecode
ProxyPass / http://BACKEND/ nocanon
`,
    },
    format: 'combined',
  },
}

async function logOf(name: string, { command, files }: Proxy, backend: string): Promise<string> {
  const folder = createFolder()
  const port = await freePort()
  const filled = (text: string) =>
    text.replaceAll('PORT', String(port)).replaceAll('BACKEND', backend).replaceAll('FOLDER', folder)
  mkdirSync(join(folder, 'temp'))
  for (const [file, text] of Object.entries(files)) writeFileSync(join(folder, file), filled(text))
  const [program, ...args] = command.map(filled)
  const child = withTests(spawn(program!, args, { cwd: folder, stdio: ['ignore', 'pipe', 'pipe'] }))
  closeLater(() => child.kill('SIGTERM'))
  let output = ''
  let errors = ''
  child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()))
  child.stderr.on('data', (chunk: Buffer) => (errors += chunk.toString()))
  child.once('error', (error) => (errors += `${error.message}; run npm run setup`))
  await until(`${name} serves`, () => {
    if (child.exitCode !== null || errors.includes('npm run setup')) throw new Error(errors)
    return fetch(`http://127.0.0.1:${port}/ready`).then(Boolean, () => false)
  })
  await playDay(port)
  const log = () =>
    (name === 'haproxy' ? output : readFileSync(join(folder, 'access.log'), 'utf8'))
      .split('\n')
      .filter((line) => line !== '' && !line.includes('/ready'))
  await until(`${name} has logged the day`, () => log().length >= DAY.length)
  return `${log().join('\n')}\n`
}

describe('sluice replay of one day', () => {
  let data: TestUpstream
  let own: ReturnType<typeof figuresOf>
  const record = (name: string, log: string): void => {
    if (process.env['RECORD'] === '1') writeFileSync(join(RECORDED, `${name}.log`), log)
  }

  beforeAll(async () => {
    data = await startUpstream((_, response) => response.end('{}'))
    const gateway = await startLogging({
      data: data.url,
      routes: [
        { match: '/api/*', upstream: 'data', authenticate: 'none' },
        { match: 'POST /login', upstream: 'data', authenticate: 'none' },
      ],
    })
    await playDay(gateway.port)
    const requests = () => gateway.lines().filter(({ msg }) => msg === 'request')
    await until('Sluice has logged the day', () => requests().length === DAY.length)
    record(
      'sluice',
      `${requests()
        .map((line) => JSON.stringify(line))
        .join('\n')}\n`,
    )
    own = figuresOf(await replayed([gateway.stdout()], dayConfig()))
  })

  it('refuses some of its calls', () => {
    expect(own.totals).toMatchObject({ clients: 3, calls: 19, refused: 7 })
    expect(own.lines).toEqual({ replayed: 19, lacking: 0, unserved: 3 })
  })

  it.each(Object.entries(PROXIES))('gives the same figures from the log of %s', async (name, proxy) => {
    const log = await logOf(name, proxy, new URL(data.url).host)
    record(name, log)
    const report = await replayed({ logs: [logFile([log.trimEnd()])] }, dayConfig())
    expect(report.logs).toMatchObject([{ format: proxy.format, unreadable: 0 }])
    expect(figuresOf(report)).toEqual(own)
  })
})

describe('sluice replay of long logs', () => {
  /** The lines of a day of 110,000 calls: more of two days are not sorted at once. */
  const day = (date: number) =>
    Array.from({ length: 110_000 }, (_, n) => {
      const [hour, minute, second] = [n / 4600, (n / 77) % 60, n % 60].map((part) =>
        String(Math.floor(part)).padStart(2, '0'),
      )
      return `192.0.2.${n % 200} - - [0${date}/Nov/2026:${hour}:${minute}:${second} +0000] "GET /api/x HTTP/1.1" 200 5`
    }).toSorted()
  const sorted = (lines: readonly string[]) =>
    lines.toSorted((a, b) => (a.slice(a.indexOf('[')) < b.slice(b.indexOf('[')) ? -1 : 1))

  it('merges rotated logs in any order, and refuses a stream that goes back in time', async () => {
    const [old, recent] = [sorted(day(1)), sorted(day(2))]
    const config = dayConfig()
    const logs = [logFile(old), logFile(gzipSync(recent.join('\n')))]
    const oldestFirst = await replayed({ logs }, config)
    const newestFirst = await replayed({ logs: logs.toReversed() }, config)
    expect({ ...newestFirst, logs: [] }).toEqual({ ...oldestFirst, logs: [] })
    expect(oldestFirst).toMatchObject({ late: { calls: 0 }, lines: { replayed: 220_000 } })
    await expect(replayed([...recent, ...old], config)).rejects.toThrow(
      /^the lines go back in time by \d+ s, further than replay sorts\. Give several logs as separate files/,
    )
  })
})
