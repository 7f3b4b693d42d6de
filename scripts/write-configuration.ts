import { writeFileSync } from 'node:fs'
import { jsonSchema, teamJsonSchema } from '../src/config/schema.ts'
import { configurationPage } from './configuration-page.ts'

// Run by `npm run schema`, after a change to src/config.
writeFileSync(
  new URL('../docs/configuration.md', import.meta.url),
  configurationPage(jsonSchema(), teamJsonSchema()),
)
