import { writeFileSync } from 'node:fs'
import type { ServerResponse } from 'node:http'
import { connect } from 'node:net'
import { hostname } from 'node:os'
import { join } from 'node:path'
import type { Browser, Page } from 'playwright-core'
import { afterEach, expect, it } from 'vitest'
import { startBrowser } from '../helpers/browser.ts'
import { createFolder } from '../helpers/folder.ts'
import {
  call,
  type Settings,
  startGateway,
  startLogging,
  type TestGateway,
  token,
  yaml,
} from '../helpers/gateway.ts'
import { freePort, startRedis } from '../helpers/redis.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const TOKEN = 'an-operator-s-token'
const HOSTILE = '<img src=x onerror=alert(1)>\u200b\u202e'
const HOSTILE_SHOWN = String.raw`<img src=x onerror=alert(1)>\u200b\u202e`
/** Long enough for a busy machine. */
const WAIT = { timeout: 20_000 }

const pages: Page[] = []
/** Errors of the browser, such as a violation of the page's policy, and requests to other origins. */
let complaints: string[] = []

const [upstream, browser] = await Promise.all([startUpstream(), startBrowser()])
const start = (more: Partial<Settings> = {}): Promise<TestGateway> =>
  startGateway({
    data: upstream.url,
    limits: `limits:
  requests: { per: [client], limit: 4, window: 1m, changes: [{ announced: 2026-01-01T00:00:00Z, from: 2090-01-15T00:00:00Z, limit: 7 }] }
  trial: { per: [client], limit: 1, window: { calendar: week, firstDay: sunday }, shadow: true }`,
    routes: 'routes: [{ match: "/*", upstream: data, authenticate: bearer, limits: [requests, trial] }]',
    more: 'clients: [{ id: generous, limits: { requests: { limit: 50 } } }]',
    ...more,
  })
const gateway = await start()
afterEach(async () => {
  for (const page of pages.splice(0)) await page.context().close()
  const found = complaints.splice(0)
  if (found.length > 0) throw new Error(found.join('\n'))
})

/** Opens a page of the console; ignores the browser's errors about a lost connection. */
async function open(
  { adminPort }: { readonly adminPort: number },
  options: Parameters<Browser['newContext']>[0] = {},
  path = '/',
): Promise<Page> {
  const page = await (await browser.newContext(options)).newPage()
  pages.push(page)
  const origin = `http://127.0.0.1:${adminPort}`
  page.on('console', (message) => {
    if (message.type() === 'error' && !message.text().startsWith('Failed to load resource'))
      complaints.push(message.text())
  })
  page.on('pageerror', (error) => complaints.push(String(error)))
  page.on('dialog', (dialog) => complaints.push(dialog.message()))
  page.on('request', (request) => {
    if (!request.url().startsWith(`${origin}/`)) complaints.push(request.url())
  })
  await page.goto(origin + path)
  return page
}

async function calls(client: string, count: number): Promise<number[]> {
  const bearer = await token(client)
  const statuses = []
  for (let i = 0; i < count; i++) statuses.push((await call(gateway.port, { token: bearer })).status)
  return statuses
}

/** Returns the texts of the cells of a row. */
const row = async (page: Page, table: string, client: string): Promise<string[]> =>
  (await page.locator(`#${table} tbody tr`, { hasText: client }).locator('th, td').allInnerTexts()).map(
    (cell) => cell.trim(),
  )

it('shows the use of each client, refusals with their end, and refusals of shadow limits', async () => {
  const page = await open(gateway)
  expect(await calls('acme', 6)).toEqual([200, 200, 200, 200, 429, 429])
  expect(await calls(HOSTILE, 1)).toEqual([200])
  await page.locator('#callers tbody tr').nth(1).waitFor(WAIT)
  const [client, perSecond, ...more] = await row(page, 'callers', 'acme')
  expect([client, ...more]).toEqual([
    ...['client:acme', '2', 'requests', '4 of 4', 'Refused by requests', '/*'],
  ])
  // The mean of the last ten seconds, which may be over on a busy machine.
  expect(perSecond).toMatch(/^0\.\d$|^0$/)
  const rateOf = (counts: number[]) =>
    page.evaluate(`import('/console/format.js').then(({ rateOf }) => rateOf(${JSON.stringify(counts)}))`)
  expect(await rateOf([99, ...Array.from({ length: 8 }, () => 0), 3, 4])).toBe(0.7)
  expect((await row(page, 'callers', HOSTILE_SHOWN))[0]).toBe(`client:${HOSTILE_SHOWN}`)

  const [refused, by, end, left] = await row(page, 'refused', 'acme')
  expect([refused, by]).toEqual(['client:acme', 'requests'])
  expect(end).toMatch(/^\d\d:\d\d:\d\d$/)
  expect(left).toMatch(/^(1 min|\d+ s)$/)
  expect(await row(page, 'limits', 'trial')).toContain('shadow: would have refused 3 calls')
  expect(await row(page, 'limits', 'trial')).toContain('1 call in a calendar week from sunday (UTC)')
  expect((await row(page, 'limits', 'requests')).at(-1)).toMatch(/^7 from 2090-01-1\d /)
  expect(await row(page, 'upstreams', 'data')).toContain('Up')
  expect((await row(page, 'trust', 'Keys of'))[1]).toMatch(/^read, or first tried, \d+ \w+ ago$/)
  expect(await page.locator('#tiles').innerText()).toContain('memory counts')
  expect(await page.locator('#ready').innerText()).toBe('Ready')
  expect(await page.locator('#calls svg').getAttribute('aria-label')).toContain('refused a second now')
})

it('shows durations, errors by route, which gateway it is, and the clients between its state and the events', async () => {
  const page = await open(gateway)
  expect(await calls('measured', 5)).toEqual([200, 200, 200, 200, 429])
  expect((await call(gateway.port)).status).toBe(401)
  await page.locator('#errors').getByText('401').waitFor(WAIT)
  expect(await row(page, 'errors', '401')).toEqual([
    '401',
    '/*',
    'the gateway',
    expect.stringMatching(/^\d+$/),
  ])
  expect((await row(page, 'errors', '429'))[2]).toBe('the gateway')
  for (const of of ['Requests, from head to end', 'Store decisions', 'Upstream data, to the head']) {
    const [, count, median, most] = await row(page, 'durations', of)
    expect(count).toMatch(/^[1-9]\d*$/)
    for (const duration of [median, most]) expect(duration).toMatch(/^\d+(\.\d)? m?s$/)
  }
  expect(await page.locator('#gateway').innerText()).toContain(`${hostname()}, process ${process.pid}, up `)
  const titles = await page.locator('#overview h2').allInnerTexts()
  const order = ['Refused now', 'Upstreams', 'Keys and certificates', 'Callers', 'Events'].map((title) =>
    titles.indexOf(title),
  )
  expect(order).toEqual(order.toSorted((a, b) => a - b))
  expect(order).not.toContain(-1)
})

it('shows since when calls fail, and the values of a second under the pointer and by the arrow keys', async () => {
  const failing = await startUpstream((_request, response) => void response.writeHead(500).end())
  const broken = await start({ data: failing.url })
  const page = await open(broken)
  await page.locator('#connection.live').waitFor(WAIT)
  expect(await page.locator('#failures').innerText()).toBe('')
  const bearer = await token('unlucky')
  expect((await call(broken.port, { token: bearer })).status).toBe(500)
  await page.getByText(/^Failures since \d\d:\d\d:\d\d\.$/).waitFor(WAIT)
  expect(await page.locator('#overview .legend').innerText()).toContain('failed (status 500 and above)')
  expect(await page.evaluate(`getComputedStyle(document.querySelector('.failed-area')).fill`)).toContain(
    '#dots',
  )

  const chart = page.locator('#calls svg')
  const values = page.locator('#calls p')
  const { x, y, width } = (await chart.boundingBox())!
  await page.mouse.move(x + width / 2, y + 50)
  expect(await values.innerText()).toMatch(/^\d\d:\d\d:\d\d: 0 calls, 0 refused, 0 failed$/)
  await page.mouse.move(0, 0)
  await chart.focus()
  await until('the second of the call is reached', async () => {
    if ((await values.innerText()).endsWith(': 1 call, 0 refused, 1 failed')) return true
    await page.keyboard.press('ArrowLeft')
    return false
  })
  const held = await values.innerText()
  expect(await chart.getAttribute('aria-valuetext')).toBe(held)
  // Stays at its second while the chart moves.
  const before = Number(await chart.getAttribute('aria-valuenow'))
  await until('the chart moves', async () => Number(await chart.getAttribute('aria-valuenow')) < before - 1)
  expect(await values.innerText()).toBe(held)
  await page.keyboard.press('End')
  expect(await chart.getAttribute('aria-valuenow')).toBe('299')
})

it('dates failures from the last pause of ten seconds', async () => {
  const page = await open(gateway)
  const at = new Date()
  const clock = (secondsAgo: number) => new Date(at.getTime() - secondsAgo * 1000).toLocaleTimeString('en-GB')
  /** Returns the sentence for failures so many seconds ago, in series of 300. */
  const sentence = async (...ago: number[]) => {
    const failed = Array.from({ length: 300 }, (_, i) => (ago.includes(300 - i) ? 1 : 0))
    const args = `${JSON.stringify(failed)}, ${JSON.stringify(at.toISOString())}`
    const [text] = await page.evaluate<string[]>(
      `import('/console/format.js').then(({ failures }) => failures(${args}))`,
    )
    return text
  }
  expect(await sentence()).toBe('')
  expect(await sentence(100, 40, 30, 20, 10)).toBe(`Failures since ${clock(40)}.`)
  expect(await sentence(100, 40, 30, 20, 11)).toBe(`Failures from ${clock(40)} to ${clock(11)}.`)
  expect(await sentence(...Array.from({ length: 300 }, (_, i) => i + 1))).toBe(
    `Failures since ${clock(300)} or earlier.`,
  )
})

it('says beside Ready that the file was rejected and that Redis is out of reach, on a phone too', async () => {
  const file = join(createFolder(), 'sluice.yaml')
  const redis = await startRedis()
  const settings = { data: upstream.url, store: `{ redis: { url: "${redis.url}" } }` }
  const troubled = await startLogging(settings, file)
  const page = await open(troubled, { viewport: { width: 400, height: 800 } }, '/#caller/somebody')
  const ready = page.locator('#ready')
  await ready.getByText('Ready', { exact: true }).waitFor(WAIT)
  await redis.kill()
  await ready
    .getByText(/^Ready, but Redis is unavailable since [\d:]{8}: each gateway admits its part of the limits$/)
    .waitFor(WAIT)
  await redis.start()
  await ready.getByText('Ready', { exact: true }).waitFor(WAIT)

  writeFileSync(file, `${yaml(settings)}nonsense: 1\nmore: 2\n`)
  await troubled.running.reload('file-change')
  await ready
    .getByText(/^Ready, but the file was rejected at [\d:]{8}: .*sluice.yaml:\d+:1: nonsense: unknown/)
    .waitFor(WAIT)
  const { y, height } = (await ready.boundingBox())!
  expect(y + height).toBeLessThan(400)
  await page.getByRole('link', { name: 'All problems' }).click()
  const problems = page.locator('#reloads .problems > div')
  await problems.getByText('more: unknown key').waitFor(WAIT)
  expect(await page.locator('#reloads-title').boundingBox()).toMatchObject({
    y: expect.toSatisfy((y: number) => y >= 0 && y < 800),
  })
  expect(await problems.allInnerTexts()).toEqual([
    'Rejected',
    expect.stringContaining(': nonsense: unknown key'),
    expect.stringContaining(': more: unknown key'),
  ])
  expect((await row(page, 'events', 'configuration rejected'))[2]).toMatch(
    /^configuration rejected; the previous one stays in force \(problems .* and 1 more\)$/,
  )

  // No time is broken over two lines, however long the event.
  await page.setViewportSize({ width: 1280, height: 800 })
  expect(
    await page.evaluate(
      `[...document.querySelectorAll('#events th span')].map((time) => time.getClientRects().length)`,
    ),
  ).not.toContain(2)
})

it('lists the clients with the most refusals first, and filters them by id or name', async () => {
  const named = await start({ more: 'clients: [{ id: 8f3a, name: Bluebird Bank }]' })
  const send = async (client: string, count: number) => {
    for (let i = 0; i < count; i++) await call(named.port, { token: await token(client) })
  }
  await send('quiet', 1)
  await send('8f3a', 5)
  await send('loud', 7)
  const page = await open(named)
  const names = () => page.locator('#callers tbody tr a').allInnerTexts()
  const expected = ['client:loud', 'Bluebird Bank (client:8f3a)', 'client:quiet'].join()
  await until('all are listed, with the most refusals first', async () => (await names()).join() === expected)
  await page.getByLabel('Filter by id or name').fill('bluebird')
  expect(await names()).toEqual(['Bluebird Bank (client:8f3a)'])
  expect(await page.locator('#some-callers').innerText()).toBe('1 of 3')
})

it('sets an override and removes it after a confirmation, and shows both and a rejected reload as events', async () => {
  const file = join(createFolder(), 'sluice.yaml')
  const settings = { data: upstream.url, limit: 4 }
  const logging = await startLogging(settings, file)
  const bearer = await token('raised')
  const statuses = async (count: number) => {
    const found = []
    for (let i = 0; i < count; i++) found.push((await call(logging.port, { token: bearer })).status)
    return found
  }
  expect(await statuses(5)).toEqual([200, 200, 200, 200, 429])
  const page = await open(logging, {}, '/#caller/raised')
  await page.locator('#caller-limits').getByText('4 of 4').first().waitFor(WAIT)
  await page.locator('#set-limit').selectOption('requests')
  await page.getByLabel('Calls', { exact: true }).fill('6')
  await page.getByLabel('Note').fill('asked by telephone')
  await page.getByRole('button', { name: 'Set', exact: true }).click()
  await page.getByText('“requests” is overridden and allows 6').waitFor(WAIT)
  expect(await statuses(3)).toEqual([200, 200, 429])
  await page.locator('#caller-overrides').getByText('asked by telephone').waitFor(WAIT)

  await page.getByRole('link', { name: 'All callers' }).click()
  await page
    .locator('#events')
    .getByText(
      /^limits of a caller set by an operator \(caller client:raised, set requests=6, until [-\d: ]+, by console, note asked by telephone\)$/,
    )
    .waitFor(WAIT)
  const remove = page.getByRole('button', { name: 'Remove the override of requests for client:raised…' })
  await remove.click()
  await page.keyboard.press('Escape')
  expect(await row(page, 'overrides', 'raised')).toContain('6')
  await remove.click()
  await page.getByRole('button', { name: 'Remove', exact: true }).click()
  await page.getByText('“requests” is no longer overridden').waitFor(WAIT)
  expect(await statuses(1)).toEqual([429])

  writeFileSync(file, `${yaml(settings)}nonsense: 1\n`)
  await logging.running.reload('file-change')
  await page.locator('#events').getByText('configuration rejected').waitFor(WAIT)
  expect(await row(page, 'events', 'configuration rejected')).toContain('error')
})

it('shows of calls at once how many are in progress, and since when the oldest', async () => {
  const held: ServerResponse[] = []
  const slow = await startUpstream((_, response) => void held.push(response))
  const busy = await start({
    ...{ data: slow.url, timeout: '1m', more: '' },
    limits: 'limits: { exports: { per: [client], concurrent: 3 } }',
    routes: 'routes: [{ match: "/*", upstream: data, authenticate: bearer, limits: [exports] }]',
  })
  const running = call(busy.port, { token: await token('busy') })
  await until('the call is in progress', () => held.length === 1)
  const page = await open(busy, {}, '/#caller/busy')
  const limits = page.locator('#caller-limits')
  await limits.getByText('1 of 3').waitFor(WAIT)
  expect(await row(page, 'caller-limits', 'exports')).toEqual([
    ...['exports', 'sluice:{busy}:~leases:exports', '1 of 3', '2'],
    expect.stringMatching(/^at once, the oldest since [\d:]{8}$/),
    ...['–', 'live'],
  ])
  held[0]!.end('{}')
  await running
  await limits.getByText('0 of 3').waitFor(WAIT)
  expect(await row(page, 'caller-limits', 'exports')).toContain('at once')
  await page.evaluate(`location.hash = ''`)
  await page.locator('#limits').getByText('3 calls at once').waitFor(WAIT)
  await busy.close()
  await slow.close()
})

it('opens a client and resets it after a confirmation, by keyboard', async () => {
  expect(await calls('keen', 5)).toEqual([200, 200, 200, 200, 429])
  const page = await open(gateway)
  await page.locator('#callers').getByText('keen').waitFor(WAIT)

  const focus = () => page.evaluate<string>('document.activeElement.textContent.trim()')
  const tabTo = async (text: string): Promise<void> => {
    for (let i = 0; i < 40; i++) {
      await page.keyboard.press('Tab')
      if ((await focus()) === text) return
    }
    throw new Error(`Tab does not reach ${text}`)
  }
  await page.keyboard.press('Tab')
  expect(await focus()).toBe('Skip to the content')
  await page.keyboard.press('Enter')
  await tabTo('client:keen')
  expect(await page.evaluate('getComputedStyle(document.activeElement).outlineStyle')).toBe('solid')
  await page.keyboard.press('Enter')
  await page.locator('#caller-limits').getByText('4 of 4').first().waitFor(WAIT)
  // The browser does not draw patterns of what is hidden.
  expect(await page.evaluate(`document.querySelector('#hatching').closest('[hidden]')`)).toBe(null)
  expect(await focus()).toBe('client:keen')
  expect(new URL(page.url()).hash).toBe(`#caller/${encodeURIComponent('client:keen')}`)

  await tabTo('Reset…')
  await page.keyboard.press('Enter')
  await page.locator('dialog[open]').waitFor(WAIT)
  await page.keyboard.press('Escape')
  await page.locator('dialog[open]').waitFor({ state: 'detached', ...WAIT })
  expect(await calls('keen', 1)).toEqual([429])
  expect(await focus()).toBe('Reset…')

  await page.keyboard.press('Enter')
  await tabTo('Reset')
  await page.keyboard.press('Enter')
  await page.getByText('Reset: 2 counters freed').waitFor(WAIT)
  await page.locator('#caller-limits').getByText('0 of 4').first().waitFor(WAIT)
  expect(await calls('keen', 1)).toEqual([200])
  await page.locator('#caller-limits').getByText('1 of 4').first().waitFor(WAIT)
})

it('resets only the client in the dialog, and neither reads nor reports on a client after its page is closed', async () => {
  for (const client of ['named', 'next']) expect(await calls(client, 1)).toEqual([200])
  const page = await open(gateway, {}, '/#caller/named')
  const asked: string[] = []
  page.on('request', (request) => {
    const { pathname } = new URL(request.url())
    if (pathname.startsWith('/limits/')) asked.push(`${request.method()} ${pathname}`)
  })
  const to = async (client: string): Promise<void> => {
    await page.evaluate(`location.hash = '#caller/${client}'`)
    await page.locator('h1:visible', { hasText: client }).waitFor(WAIT)
    await page.locator('#caller-limits').getByText('1 of 4').first().waitFor(WAIT)
  }
  const reset = page.getByRole('button', { name: 'Reset', exact: true })
  const question = page.getByRole('button', { name: 'Reset…' })
  await page.locator('#caller-limits').getByText('1 of 4').first().waitFor(WAIT)
  await question.click()
  await to('next')
  expect(await page.locator('dialog').isVisible()).toBe(false)
  expect(asked.filter((line) => line.startsWith('DELETE'))).toEqual([])

  await to('named')
  let release = (): void => {}
  const held = new Promise<void>((resolve) => (release = resolve))
  await page.route('**/limits/named', async (route) => {
    if (route.request().method() === 'DELETE') await held
    await route.continue()
  })
  await question.click()
  const answered = page.waitForResponse((response) => response.request().method() === 'DELETE')
  await reset.click()
  await page.evaluate(`location.hash = ''`)
  await page.locator('#overview').waitFor(WAIT)
  release()
  await answered
  await to('next')
  expect(await page.locator('#caller-message').innerText()).toBe('')
  const after = asked.slice(asked.indexOf('DELETE /limits/named') + 1)
  expect(new Set(after)).toEqual(new Set(['GET /limits/next']))
})

it('shows the limits of a client without calls, its own limits, and upcoming changes', async () => {
  const page = await open(gateway, {}, '/#caller/generous')
  await page.getByText('its own "requests" of 50.').waitFor(WAIT)
  expect(await page.locator('#caller-state').innerText()).toBe(
    'No call in the last minute, or not among the busiest callers.',
  )
  expect(await page.locator('#caller-limits').innerText()).toContain('0 of 50')
  expect(await page.locator('#caller-notes').innerText()).toMatch(
    /^No calls of client:generous are counted\.$/m,
  )
  expect(await page.locator('#caller-tiles').innerText()).toContain('Unknown')
  await page.getByRole('link', { name: 'All callers' }).click()
  await page.getByLabel('Open a caller, such as ip:192.0.2.7').fill('an/other')
  await page.getByRole('button', { name: 'Open' }).click()
  await page.getByText(/^From 2090-01-1\d/).waitFor(WAIT)
  expect(await page.locator('h1:visible').innerText()).toBe('an/other')
  expect(await page.locator('#caller-notes').innerText()).toContain('check its spelling.')
  const override = { headers: { 'Content-Type': 'application/json' }, body: '{"set":{"requests":9}}' }
  await call(gateway.adminPort, { method: 'PATCH', path: '/limits/an%2Fother', ...override })
  await page
    .locator('#caller-notes')
    .getByText(/are counted\.$/)
    .waitFor(WAIT)
})

it('offers neither a reset nor an override for a caller that no limit counts', async () => {
  const page = await open(gateway, {}, '/#caller/user%3Aalice')
  await page.getByText('No limit counts "user:alice"').waitFor(WAIT)
  expect(await page.getByRole('button', { name: 'Reset…' }).isVisible()).toBe(false)
  expect(await page.getByRole('heading', { name: 'Set a limit' }).isVisible()).toBe(false)
  await page.evaluate(`location.hash = '#caller/generous'`)
  await page.getByText('its own "requests" of 50.').waitFor(WAIT)
  expect(await page.getByRole('button', { name: 'Reset…' }).isVisible()).toBe(true)
  expect(await page.getByRole('heading', { name: 'Set a limit' }).isVisible()).toBe(true)
})

it('shows ten of the callers that are refused now, and all when asked', async () => {
  const crowded = await start()
  for (let client = 0; client < 11; client++) {
    const bearer = await token(`crowd-${client}`)
    for (let i = 0; i < 5; i++) await call(crowded.port, { token: bearer })
  }
  const page = await open(crowded)
  const rows = page.locator('#refused tbody tr')
  await rows.nth(9).waitFor(WAIT)
  await page.locator('#all-refused').waitFor(WAIT)
  expect(await rows.count()).toBe(10)
  await page.locator('#all-refused').click()
  await rows.nth(10).waitFor(WAIT)
  await page.locator('#all-refused').click()
  await until('ten rows', async () => (await rows.count()) === 10)
})

it('asks for the token, sends it only in a header, and forgets it', async () => {
  const closed = await start({ admin: `{ port: 0, token: ${TOKEN} }` })
  const page = await open(closed)
  const urls: string[] = []
  page.on('request', (request) => urls.push(request.url()))
  await page.getByLabel('Token').fill('wrong')
  await page.getByRole('button', { name: 'Show the console' }).click()
  await page.getByText('Wrong token; send the configured admin.token.').waitFor(WAIT)
  expect(await page.locator('#overview').isVisible()).toBe(false)
  await page.getByLabel('Token').fill(TOKEN)
  await page.keyboard.press('Enter')
  await page.locator('#connection.live').waitFor(WAIT)
  expect(await page.locator('#overview').isVisible()).toBe(true)
  expect(await page.evaluate('document.activeElement.id')).toBe('main')
  await page.reload()
  await page.locator('#connection.live').waitFor(WAIT)
  await page.getByRole('button', { name: 'Forget the token' }).click()
  await page.getByLabel('Token').waitFor(WAIT)
  expect(urls.filter((url) => url.includes(TOKEN))).toEqual([])
})

it('fits a phone, and follows the preferred colours and motion', async () => {
  const phone = { viewport: { width: 360, height: 740 } }
  const back = (page: Page) => page.evaluate('getComputedStyle(document.body).backgroundColor')
  await calls('a-client-with-a-name-that-is-long-and-has-no-break-in-it-0123456789', 1)
  const page = await open(gateway, { ...phone, colorScheme: 'dark', reducedMotion: 'reduce' })
  await page.locator('#callers').getByText('0123456789').waitFor(WAIT)
  const width = () => page.evaluate('document.documentElement.scrollWidth')
  expect(await width()).toBe(360)
  expect(await back(page)).toBe('rgb(16, 21, 27)')
  expect(await page.evaluate('getComputedStyle(document.querySelector("main")).transitionDuration')).toBe(
    '0s',
  )
  await page.locator('#callers').getByText('0123456789').click()
  await page.locator('#caller-limits').getByText('1 of 4').first().waitFor(WAIT)
  expect(await width()).toBe(360)
  await page.evaluate(`location.hash = '#caller/without-calls'`)
  await page.getByText('No call in the last minute').waitFor(WAIT)
  expect(await width()).toBe(360)
  expect(await back(await open(gateway, { ...phone, colorScheme: 'light' }))).toBe('rgb(244, 246, 248)')
})

it('reports a lost connection, and reconnects', async () => {
  const admin = `{ port: ${await freePort()} }`
  const first = await start({ admin })
  const page = await open(first)
  await page.locator('#connection.live').waitFor(WAIT)
  await first.close()
  await page.getByText('Connection lost; trying again.').waitFor(WAIT)
  await start({ admin })
  await page.locator('#connection.live').waitFor(WAIT)
  await until('it is shown as live', () =>
    page.evaluate<boolean>('!document.body.classList.contains("stale")'),
  )
  expect(await page.locator('#connection').innerText()).toBe('Live')
})

it('shows that an upstream hangs while its callers wait, and its duration after they left', async () => {
  const hanging = await startUpstream(() => {})
  const { port, adminPort } = await start({
    ...{ data: hanging.url, timeout: '60s', upstream: 'maxConnections: 1', limits: '' },
    routes: 'routes: [{ match: "/*", upstream: data, authenticate: none }]',
    more: '',
  })
  const callers = Array.from({ length: 3 }, () => connect(port, '127.0.0.1').on('error', () => {}))
  for (const socket of callers) socket.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n')
  const page = await open({ adminPort })
  const shown = page.locator('#upstreams tbody tr', { hasText: 'data' }).locator('td').last()
  const text = async () => (await shown.innerText()).trim()
  const hangs = /^1 socket, 2 in the queue, 1 waiting for a response, the oldest for \d+ m?s$/
  await until('the load', async () => hangs.test(await text()))
  for (const socket of callers) socket.destroy()
  await until('nobody waits', async () => /^\d sockets?$/.test(await text()))
  const duration = page.locator('#durations tbody tr', { hasText: 'Upstream data' })
  await until('the duration', async () => (await duration.count()) === 1)
  expect(await duration.locator('td').first().innerText()).toMatch(/^[1-3]$/)
})
