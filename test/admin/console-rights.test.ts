import { expect, it } from 'vitest'
import { startConsole, WAIT } from '../helpers/console.ts'
import { call } from '../helpers/gateway.ts'
import { bearerOf, OPERATOR_TOKENS, setting, withOperators } from '../helpers/operators.ts'

const { start, open } = await startConsole()
const gateway = await start({ admin: withOperators() })
const blocked = setting({ requests: 0, trial: 3 }, { note: 'leaked token' })
await call(gateway.adminPort, {
  path: '/limits/generous',
  ...blocked,
  headers: { ...blocked.headers, ...bearerOf(OPERATOR_TOKENS.ops) },
})

/** Opens the page of a caller as an operator. */
async function openAs(operator: keyof typeof OPERATOR_TOKENS) {
  const page = await open(gateway, {}, '/#caller/generous')
  await page.getByLabel('Token').fill(OPERATOR_TOKENS[operator])
  await page.getByRole('button', { name: 'Show the console' }).click()
  await page.locator('#caller-overrides').getByText('leaked token').first().waitFor(WAIT)
  await page.locator('#connection.live').waitFor(WAIT)
  const offered = async (): Promise<string[]> => {
    const all = await page.locator('main button:visible').allInnerTexts()
    return all.filter((text) => /^(Set|Reset…|Remove…)$/.test(text))
  }
  return { page, offered }
}

it('shows everything to an operator who may only read, and offers no change', async () => {
  const { page, offered } = await openAs('support')
  expect(await page.locator('#operator').innerText()).toBe('support, may only read')
  expect(await page.locator('#caller-overrides').innerText()).toMatch(/by ops/)
  expect(await page.getByRole('heading', { name: 'Overrides', exact: true }).last().isVisible()).toBe(true)
  expect(await offered()).toEqual([])
  await page.getByRole('link', { name: 'All callers' }).click()
  await page.locator('#overrides').getByText('leaked token').first().waitFor(WAIT)
  expect(await offered()).toEqual([])
})

it('offers an operator with a list of limits only changes of those', async () => {
  const { page, offered } = await openAs('team')
  expect(await page.locator('#operator').innerText()).toBe('team, may change only requests')
  expect(await page.locator('#set-limit option').allInnerTexts()).toEqual(['requests'])
  expect(await offered()).toEqual(['Set', 'Remove…'])
  expect(
    await page
      .getByRole('button', { name: 'Remove the override of requests for client:generous…' })
      .first()
      .isVisible(),
  ).toBe(true)
})

it('offers all changes to an operator with the right to set, under the name of the operator', async () => {
  const { page, offered } = await openAs('all')
  expect(await page.locator('#operator').innerText()).toBe('admin.token')
  expect(await offered()).toEqual(['Reset…', 'Set', 'Remove…', 'Remove…'])
  await page.locator('#set-limit').selectOption('requests')
  await page.getByLabel('Calls', { exact: true }).fill('6')
  await page.getByRole('button', { name: 'Set', exact: true }).click()
  await page
    .locator('#caller-overrides')
    .getByText(/by admin\.token/)
    .waitFor(WAIT)
})

it('shows the sentence of a refusal if the right was taken away meanwhile', async () => {
  const { page } = await openAs('all')
  // As a page that was loaded before a reload took the right away.
  await page.evaluate(`sessionStorage.setItem('sluice-admin-token', '${OPERATOR_TOKENS.support}')`)
  await page.evaluate(`document.querySelector('#set-calls').value = '9'`)
  await page.evaluate(`document.querySelector('#set').requestSubmit()`)
  const message = page.getByText('The limit was not changed: "support" may only read;')
  await message.waitFor(WAIT)
  expect(await message.isVisible()).toBe(true)
})
