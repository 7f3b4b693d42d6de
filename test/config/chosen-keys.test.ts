import { readFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { loadConfig } from '../../src/config/load.ts'
import { codeBlocks, filesIn, REPOSITORY } from '../helpers/repository.ts'

const textOf = (file: string) => ({ file, text: readFileSync(join(REPOSITORY, file), 'utf8') })
const isConfig = (text: string): boolean =>
  /^limits:/m.test(text) && /^routes:(?: #.*)?$/m.test(text) && !text.includes('sluice-team.schema.json')

/** Values of the variables without a default. */
const ENV = {
  ADMIN_TOKEN: '0123456789abcdef',
  AUDIENCE: 'https://api.example.com',
  ISSUER: 'https://id.example.com',
  JWKS: 'https://id.example.com/jwks',
  IDENTITY_HOST: 'id.example.com',
  API_HOST: 'api.example.com',
  IDENTITY_URL: 'http://identity.internal:3000',
  DATA_URL: 'http://data.internal:4000',
  REDIS_URL: 'rediss://redis.internal:6379',
  REDIS_PASSWORD: 'secret',
  STATE_DIRECTORY: tmpdir(),
}

const shipped = ['config', 'deploy']
  .flatMap((folder) => filesIn(folder, '.yaml'))
  .map(textOf)
  .filter(({ text }) => isConfig(text))
const shown = [...filesIn('docs', '.md'), 'README.md']
  .map(textOf)
  .flatMap(({ file, text }) =>
    codeBlocks(text, 'yaml').map((block, i) => ({ file: `${file} (${i + 1})`, text: block })),
  )
  .filter(({ text }) => isConfig(text))

it.each([...shipped, ...shown])('$file bounds the keys that callers choose', async ({ text }) => {
  const { config } = await loadConfig({
    file: '-',
    text: text.replaceAll(/"file:.*?"/g, '"${ADMIN_TOKEN}"'),
    env: ENV,
    // The sandbox writes its file of keys when it starts.
    offline: true,
  })
  const unbounded = config.warnings.filter(({ message }) => message.startsWith('is chosen by callers'))
  expect(unbounded).toEqual([])
})

it('finds the examples, the deployments and the files of the documents', () => {
  expect([shipped.length > 15, shown.length > 2]).toEqual([true, true])
})
