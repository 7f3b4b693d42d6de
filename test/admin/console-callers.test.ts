import { expect, it } from 'vitest'
import { startConsole, WAIT } from '../helpers/console.ts'
import { call, token } from '../helpers/gateway.ts'
import { until } from '../helpers/wait.ts'

const TOKEN = 'an-operator-s-token'

const { start, gateway, open, calls } = await startConsole()

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
  await page.locator('dialog[open]').waitFor(WAIT)
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
    /^No calls of client:generous are counted now\.$/m,
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
    .getByText(/are counted now\.$/)
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
  const closed = await start({ admin: { port: 0, token: TOKEN } })
  const page = await open(closed)
  const urls: string[] = []
  page.on('request', (request) => urls.push(request.url()))
  await page.getByLabel('Token').fill('wrong')
  await page.getByRole('button', { name: 'Show the console' }).click()
  await page
    .getByText('Wrong token; send admin.token, or the token of an entry of admin.tokens.')
    .waitFor(WAIT)
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
