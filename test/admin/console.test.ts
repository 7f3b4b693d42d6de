import { writeFileSync } from 'node:fs'
import type { ServerResponse } from 'node:http'
import { connect } from 'node:net'
import { hostname } from 'node:os'
import { join } from 'node:path'
import type { Page } from 'playwright-core'
import { expect, it } from 'vitest'
import { NOON_ZONE } from '../helpers/browser.ts'
import { startConsole, WAIT } from '../helpers/console.ts'
import { createFolder } from '../helpers/folder.ts'
import { call, startLogging, token, yaml } from '../helpers/gateway.ts'
import { freePort } from '../helpers/ports.ts'
import { startRedis } from '../helpers/redis.ts'
import { makeCertificate } from '../helpers/self-signed.ts'
import { startUpstream } from '../helpers/upstream.ts'
import { until } from '../helpers/wait.ts'

const HOSTILE = '<img src=x onerror=alert(1)>\u200b\u202e'
const HOSTILE_SHOWN = String.raw`<img src=x onerror=alert(1)>\u200b\u202e`

const { upstream, start, gateway, open, calls, row } = await startConsole()

it('shows the use of each client, refusals with their end, and refusals of shadow limits', async () => {
  const page = await open(gateway)
  expect(await calls('acme', 6)).toEqual([200, 200, 200, 200, 429, 429])
  expect(await calls(HOSTILE, 1)).toEqual([200])
  await page.locator('#callers tbody tr').nth(1).waitFor(WAIT)
  const [client, perSecond, ...more] = await row(page, 'callers', 'acme')
  expect([client, ...more]).toEqual([
    ...['client:acme', '2', 'requests', '4 of 4', 'Refused by requests', '–', '/*'],
  ])
  // The mean of the last ten seconds, which may be over on a busy machine.
  expect(perSecond).toMatch(/^0\.\d$|^0$/)
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
  const clock = (secondsAgo: number) =>
    new Date(at.getTime() - secondsAgo * 1000).toLocaleTimeString('en-GB', { timeZone: NOON_ZONE })
  /** Returns the sentence for failures some seconds ago, in series of 300. */
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

it('shows until when a certificate is valid, and the days left', async () => {
  const { cert, key } = makeCertificate('localhost', 30.5 * 86_400_000)
  const folder = createFolder()
  const [file, keyFile] = ['cert.pem', 'key.pem'].map((name) => join(folder, name))
  writeFileSync(file!, cert)
  writeFileSync(keyFile!, key)
  const listen = { tls: { cert: file, key: keyFile } }
  const page = await open(await startLogging({ data: upstream.url, listen }))
  await page.locator('#trust').getByText('listen.tls.cert').waitFor(WAIT)
  expect((await row(page, 'trust', 'listen.tls.cert'))[1]).toMatch(
    /^is valid until \d{4}-\d\d-\d\d [\d:]{8}; 30 days left$/,
  )
})

it('says next to Ready that the limits set by operators are unknown', async () => {
  const redis = await startRedis()
  await redis.kill()
  const page = await open(await startLogging({ data: upstream.url, store: { redis: { url: redis.url } } }))
  const ready = page.locator('#ready')
  const unknown = ready.getByText(/^Ready, but .*; limits set by operators are unknown until Redis answers$/)
  await unknown.waitFor(WAIT)
  await redis.start()
  await ready.getByText('Ready', { exact: true }).waitFor(WAIT)
  expect(await unknown.count()).toBe(0)
})

it('says next to Ready that the file was rejected and that Redis is out of reach, on a phone too', async () => {
  const file = join(createFolder(), 'sluice.yaml')
  const redis = await startRedis()
  const settings = { data: upstream.url, store: { redis: { url: redis.url } } }
  const troubled = await startLogging(settings, file)
  const page = await open(troubled, { viewport: { width: 400, height: 800 } }, '/#caller/somebody')
  const ready = page.locator('#ready')
  await ready.getByText('Ready', { exact: true }).waitFor(WAIT)
  await redis.kill()
  await ready
    .getByText(/^Ready, but Redis is unavailable since [\d:]{8}: counting in this process$/)
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
  await expect
    .poll(async () => (await row(page, 'events', 'configuration rejected'))[2], WAIT)
    .toMatch(/^configuration rejected; the previous one stays in force \(problems .* and 1 more\)$/)

  // No time is broken over two lines, also for a long event.
  await page.setViewportSize({ width: 1280, height: 800 })
  expect(
    await page.evaluate(
      `[...document.querySelectorAll('#events th span')].map((time) => time.getClientRects().length)`,
    ),
  ).not.toContain(2)
})

it('lists the clients with the most refusals first, and filters them by id or name', async () => {
  const named = await start({ more: { clients: [{ id: '8f3a', name: 'Bluebird Bank' }] } })
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
      /^audit \(name loopback, address 127\.0\.0\.1, operation set, result done, caller client:raised, limit requests, before 4, after 6, until [-\d: ]+, note asked by telephone\)$/,
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
    ...{ data: slow.url, timeout: '1m', more: {} },
    limits: { exports: { per: ['client'], concurrent: 3 } },
    routes: [{ match: '/*', upstream: 'data', authenticate: 'bearer', limits: ['exports'] }],
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
  const admin = { port: await freePort() }
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
    ...{ data: hanging.url, timeout: '60s', upstream: { maxConnections: 1 }, limits: {} },
    routes: [{ match: '/*', upstream: 'data', authenticate: 'none' }],
    more: {},
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
