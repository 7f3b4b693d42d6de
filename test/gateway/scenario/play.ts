import { expect, vi } from 'vitest'
import { sluice } from '../../commands/run.ts'
import { call, type LoggingGateway } from '../../helpers/gateway.ts'
import { until } from '../../helpers/wait.ts'
import { type PlayedCall, repeated, send, write } from './calls.ts'
import { expectValues, namesIn } from './expected.ts'
import type { Scenario, SentCall, Values } from './file.ts'
import { setAnswers, upstream } from './gateways.ts'

let scenarios = 0

/** Plays a scenario, and expects what its steps say. */
export async function play({ steps, asking }: Scenario, gateway: LoggingGateway): Promise<void> {
  const client = `client-of-${++scenarios}`
  for (const [i, step] of steps.entries()) {
    const name = `step ${i + 1}`
    if ('metrics' in step) await expectMetrics(step.metrics, gateway)
    else if ('log lacks' in step) expect(gateway.stdout(), name).not.toContain(step['log lacks'])
    else if ('counters' in step) await expectCounters(step.counters, gateway, client, name)
    else if ('runs' in step) await runCommand(step, gateway, name)
    else
      for (const own of step.each ?? [{}]) {
        const entry = step.each === undefined ? '' : ` with ${JSON.stringify(own)}`
        const one = { ...step, ...own, asking }
        await playTimes(one, gateway, client, `${name}: ${nameOf(one)}${entry}`)
      }
  }
}

async function expectMetrics(lines: readonly string[], gateway: LoggingGateway): Promise<void> {
  const { body } = await call(gateway.adminPort, { path: '/metrics' })
  for (const line of lines) expect(body).toContain(`${line}\n`)
}

/** Expects the counters of a client, once all calls are settled. */
async function expectCounters(
  counters: Values,
  gateway: LoggingGateway,
  client: string,
  name: string,
): Promise<void> {
  const read = async () => {
    const { json } = await call(gateway.adminPort, { path: `/limits/client:${client}` })
    expectValues({ json: json.limits }, { json: counters }, `${name}: counters`)
  }
  await vi.waitFor(read, { timeout: 10_000 })
}

async function runCommand(
  { runs, prints }: { readonly runs: string; readonly prints: readonly string[] },
  gateway: LoggingGateway,
  step: string,
): Promise<void> {
  const name = `${step}: ${runs}`
  const ended = await sluice([...runs.split(' '), '--admin', `http://127.0.0.1:${gateway.adminPort}`])
  expect(ended, name).toMatchObject({ code: 0 })
  for (const text of prints) expect(ended.stdout, name).toMatch(new RegExp(text, 'm'))
}

async function playTimes(
  step: PlayedCall,
  gateway: LoggingGateway,
  client: string,
  name: string,
): Promise<void> {
  const { times = 1, eventually } = step
  const played = () => playCall(step, gateway, client, name)
  for (let time = 0; time < times; time++)
    await (eventually ? vi.waitFor(played, { timeout: 20_000 }) : played())
}

const nameOf = ({ send, asks, bytes }: SentCall) => send ?? (bytes ? JSON.stringify(bytes) : String(asks))

async function playCall(
  step: PlayedCall,
  gateway: LoggingGateway,
  client: string,
  name: string,
): Promise<void> {
  const seen = upstream.seen.length
  setAnswers(step.answers)
  const got =
    step.bytes === undefined ? await send(step, gateway, client) : await write(step.bytes, step.gets, gateway)
  if (step.gets !== undefined)
    expectValues(got, typeof step.gets === 'number' ? { status: step.gets } : step.gets, name)
  const forwarded = upstream.seen.slice(seen).map(({ method, url, headers, rawHeaders, body }) => ({
    ...headers,
    ...repeated(rawHeaders, namesIn(step.forwarded)),
    method,
    target: url,
    body: body.toString(),
  }))
  if (step.forwarded === 'nothing') expect(forwarded, name).toEqual([])
  else if (step.forwarded !== undefined) {
    expect(forwarded.length, `${name}: requests that the upstream got`).toBe(1)
    expectValues(forwarded[0]!, step.forwarded, name)
  }
  if (step.logged === undefined) return
  const lines = () => gateway.lines().filter(({ requestId }) => requestId === got['x-request-id'])
  await until(`${name} is logged`, () => lines().length > 0)
  expectValues({ json: lines()[0]! }, { json: step.logged }, name)
}
