import { readdirSync } from 'node:fs'
import { beforeAll, describe, expect, it } from 'vitest'
import type { LoggingGateway } from '../helpers/gateway.ts'
import { scenariosOf } from './scenario/file.ts'
import { gatewayOf } from './scenario/gateways.ts'
import { play } from './scenario/play.ts'

const FOLDER = new URL('scenarios/', import.meta.url).pathname
const files = readdirSync(FOLDER).filter((name) => name.endsWith('.yaml'))

describe.each(files)('%s', (file) => {
  const scenarios = scenariosOf(FOLDER + file)
  const gateways: LoggingGateway[] = []
  // Before the tests, so that each gateway is open until the end of them all.
  beforeAll(async () => {
    for (const scenario of scenarios) gateways.push(await gatewayOf(scenario))
  })
  for (const [i, scenario] of scenarios.entries())
    it(`${scenario.title}, in ${scenario.where}`, async () => {
      expect.hasAssertions()
      await play(scenario, gateways[i]!)
    })
})
