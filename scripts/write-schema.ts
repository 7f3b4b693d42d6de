import { writeFileSync } from 'node:fs'
import { jsonSchema } from '../src/config/schema.ts'
import { configurationPage } from './configuration-page.ts'

// Run by `npm run schema`, after a change to src/config.
const schema = jsonSchema()
const write = (path: string, text: string): void =>
  writeFileSync(new URL(`../${path}`, import.meta.url), text)
write('config/sluice.schema.json', `${JSON.stringify(schema, undefined, 2)}\n`)
write('docs/configuration.md', configurationPage(schema))
