import { writeFileSync } from 'node:fs'
import { jsonSchema } from '../src/config/schema.ts'

// Run by `npm run schema`, after a change to src/config/schema.ts.
writeFileSync(
  new URL('../config/sluice.schema.json', import.meta.url),
  `${JSON.stringify(jsonSchema(), undefined, 2)}\n`,
)
