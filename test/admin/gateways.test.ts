import { hostname } from 'node:os'
import { join } from 'node:path'
import type { Browser, Page } from 'playwright-core'
import { afterEach, describe, expect, it } from 'vitest'
import type { Overview } from '../../src/admin/overview/overview.ts'
import { WITHOUT_REDIS } from '../../src/observe/status.ts'
import { startBrowser } from '../helpers/browser.ts'
import { createFolder } from '../helpers/folder.ts'
import { call, startGateway, type TestGateway } from '../helpers/gateway.ts'
import { startRedis } from '../helpers/redis.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const HOSTILE = '<img src=x onerror=alert(1)>\u202e'
const HOSTILE_SHOWN = String.raw`<img src=x onerror=alert(1)>\u202e`
/** Long enough for a busy machine. */
const WAIT = { timeout: 20_000 }

const folder = createFolder()
let page: Page | undefined
/** Errors of the browser, and dialogs. */
let complaints: string[] = []

const [upstream, browser, redis] = await Promise.all([startUpstream(), startBrowser(), startRedis()])
const start = (store: object | 'memory'): Promise<TestGateway> =>
  startGateway({ data: upstream.url, store }, join(folder, 'sluice.yaml'))
const gateway = await start({ redis: { url: redis.url } })
afterEach(async () => {
  await page?.context().close()
  const found = complaints.splice(0)
  if (found.length > 0) throw new Error(found.join('\n'))
})

async function open(
  { adminPort }: { readonly adminPort: number },
  options: Parameters<Browser['newContext']>[0] = {},
): Promise<Page> {
  page = await (await browser.newContext(options)).newPage()
  page.on('console', (message) => {
    if (message.type() === 'error' && !message.text().startsWith('Failed to load resource'))
      complaints.push(message.text())
  })
  page.on('pageerror', (error) => complaints.push(String(error)))
  page.on('dialog', (dialog) => complaints.push(dialog.message()))
  await page.goto(`http://127.0.0.1:${adminPort}/`)
  await page.locator('#gateways tbody tr').first().waitFor(WAIT)
  return page
}

/** Returns the texts of the cells of the row with this text. */
const row = async (shown: Page, text: string): Promise<string[]> =>
  (await shown.locator('#gateways tbody tr', { hasText: text }).locator('th, td').allInnerTexts()).map(
    (cell) => cell.trim(),
  )

/** Writes the summaries of other gateways into Redis, each like that of the gateway except for these fields, until it is stopped. */
async function pretend(...others: readonly Partial<Overview['gateways'][number]>[]): Promise<() => void> {
  const { gateways } = (await call(gateway.adminPort, { path: '/overview' })).json as Overview
  const { self: _, ageMs: __, ...own } = gateways.find(({ self }) => self)!
  async function send(): Promise<void> {
    const [seconds] = (await redis.command('TIME')) as string[]
    const fields = others.map((other, i) => [
      `other-${i}`,
      `${seconds}000 ${JSON.stringify({ ...own, ...other })}`,
    ])
    await redis.command('HSET', 'sluice:{}:~summaries', ...fields.flat())
  }
  await send()
  const timer = setInterval(() => void send().catch(() => {}), 500)
  return () => clearInterval(timer)
}

describe('the table of gateways', () => {
  it('shows all that share the Redis, marks another configuration, and opens a console that can be reached', async () => {
    const stop = await pretend(
      { host: 'gw-a', pid: 7, calls: 812, refused: 4.25, admin: 'http://10.9.8.7:9090' },
      {
        host: 'gw-b',
        configuration: 'f'.repeat(64),
        version: '0.0.9',
        outage: WITHOUT_REDIS.local,
        withoutRedis: 3,
      },
      { host: 'gw-c', admin: 'http://localhost:9090', failed: 2 },
    )
    const shown = await open(gateway)
    await shown.locator('#gateways').getByText('gw-c').waitFor(WAIT)
    const { gateways, version } = (await call(gateway.adminPort, { path: '/overview' })).json as Overview
    const hash = gateways.find(({ self }) => self)!.configuration!.slice(0, 12)
    const started = expect.stringMatching(/^\d\d:\d\d:\d\d$/)
    expect(await row(shown, 'gw-a')).toEqual([
      ...['gw-a, process 7', '812', '4.3', '0', 'up', hash, version, started, 'http://10.9.8.7:9090'],
    ])
    expect((await row(shown, 'gw-b')).slice(4, 7)).toEqual([
      'without Redis: counting in this process; 3 decisions without Redis',
      'ffffffffffff, differs from here',
      '0.0.9',
    ])
    expect((await row(shown, 'gw-c')).slice(3)).toEqual([
      '2.0',
      'up',
      hash,
      version,
      started,
      'http://localhost:9090',
    ])
    expect(await row(shown, 'this one')).toEqual([
      ...[`${hostname()}, process ${process.pid}`, '0', '0', '0', 'up', hash, version, started, 'this one'],
    ])
    const links = shown.locator('#gateways a:visible')
    expect(await links.evaluateAll((all) => all.map((link) => link.getAttribute('href')))).toEqual([
      'http://10.9.8.7:9090/',
    ])
    expect(await shown.locator('#gateways-note').isVisible()).toBe(false)
    stop()
  })

  it('shows texts of others as text, and links to nothing that is not http', async () => {
    const stop = await pretend(
      { host: HOSTILE, admin: 'javascript:alert(1)//' },
      { host: 'userinfo', admin: 'https://ours.example@10.9.8.7/path' },
      { host: 'nonsense', admin: 'http://' },
    )
    const shown = await open(gateway)
    await shown.locator('#gateways').getByText('userinfo').waitFor(WAIT)
    expect((await row(shown, 'onerror'))[0]).toMatch(
      new RegExp(`^${HOSTILE_SHOWN.replaceAll(/[()\\]/g, '\\$&')},`),
    )
    expect((await row(shown, 'onerror')).at(-1)).toBe('javascript:alert(1)//')
    expect((await row(shown, 'nonsense')).at(-1)).toBe('http://')
    expect((await row(shown, 'userinfo')).at(-1)).toBe('https://10.9.8.7')
    const links = shown.locator('#gateways a:visible')
    expect(await links.evaluateAll((all) => all.map((link) => link.getAttribute('href')))).toEqual([
      'https://10.9.8.7/',
    ])
    stop()
  })

  it.for([
    [1280, 'light'],
    [1280, 'dark'],
    [400, 'light'],
    [400, 'dark'],
  ] as const)('fits a width of %i in %s colours', async ([width, colorScheme]) => {
    const stop = await pretend(
      { host: 'a-very-long-name-of-a-pod-7d9f8b6c5d-x2x4z', admin: 'http://gateway-7.sluice.internal:9090' },
      { host: 'gw-b', configuration: 'f'.repeat(64), outage: WITHOUT_REDIS.local, withoutRedis: 30_000 },
    )
    const shown = await open(gateway, { viewport: { width, height: 900 }, colorScheme })
    await shown.locator('#gateways').getByText('gw-b').waitFor(WAIT)
    const [content, view] = (await shown.evaluate(
      '[document.documentElement.scrollWidth, document.documentElement.clientWidth]',
    )) as [number, number]
    expect(content).toBeLessThanOrEqual(view)
    stop()
  })

  it('says that it shows this process only, if that counts in memory', async () => {
    const alone = await start('memory')
    const shown = await open(alone)
    expect(await shown.locator('#gateways-note').innerText()).toBe(
      'This gateway counts in memory: other gateways are not shown.',
    )
    expect(await shown.locator('#gateways tbody tr').count()).toBe(1)
  })

  it('says that Redis is out of reach, and shows the others with their age', async () => {
    const stop = await pretend({ host: 'gw-a' })
    const shown = await open(gateway)
    await shown.locator('#gateways').getByText('gw-a').waitFor(WAIT)
    stop()
    await redis.kill()
    await shown.getByText('Redis is unavailable: the other gateways are shown as they were at').waitFor(WAIT)
    const state = async () => (await row(shown, 'gw-a'))[4]
    await until('the age is shown', async () => (await state()) !== 'up')
    expect(await state()).toMatch(/^\d+ s ago: up$/)
    await redis.start()
    await until('the note goes', async () => !(await shown.locator('#gateways-note').isVisible()))
  })
})
