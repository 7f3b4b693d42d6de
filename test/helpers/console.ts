import type { Browser, Page } from 'playwright-core'
import { afterEach } from 'vitest'
import { startBrowser } from './browser.ts'
import { call, type Settings, startGateway, type TestGateway, token } from './gateway.ts'
import { startUpstream } from './upstream.ts'

/** Long enough for a busy machine. */
export const WAIT = { timeout: 20_000 }

/** Starts a browser and a gateway with a console for the tests of a file. */
export async function startConsole() {
  const pages: Page[] = []
  /** Errors of the browser, such as a violation of the page's policy, and requests to other origins. */
  const complaints: string[] = []
  const [upstream, browser] = await Promise.all([startUpstream(), startBrowser()])
  const start = (more: Partial<Settings> = {}): Promise<TestGateway> =>
    startGateway({
      data: upstream.url,
      limits: {
        requests: {
          per: ['client'],
          limit: 4,
          window: '1m',
          changes: [{ announced: '2026-01-01T00:00:00Z', from: '2090-01-15T00:00:00Z', limit: 7 }],
        },
        trial: { per: ['client'], limit: 1, window: { calendar: 'week', firstDay: 'sunday' }, shadow: true },
      },
      routes: [{ match: '/*', upstream: 'data', authenticate: 'bearer', limits: ['requests', 'trial'] }],
      more: { clients: [{ id: 'generous', limits: { requests: { limit: 50 } } }] },
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

  return { upstream, start, gateway, open, calls, row }
}
