import { writeFileSync } from 'node:fs'
import { schemaText } from '../src/commands/schema.ts'
import { jsonSchema } from '../src/config/schema.ts'
import { configurationPage } from './configuration-page.ts'

// Run by `npm run schema`, after a change to src/config.
const write = (path: string, text: string): void =>
  writeFileSync(new URL(`../${path}`, import.meta.url), text)
write('config/sluice.schema.json', schemaText())
write('docs/configuration.md', configurationPage(jsonSchema()))
