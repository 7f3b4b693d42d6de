import { readFileSync } from 'node:fs'
import { packageFile } from '../runtime/package.ts'

type Values = Readonly<Record<string, string | number | boolean | readonly string[]>>

/**
 * Fills in a text of the folder `config`: `${name}` is a value; a line that begins with `@name ` is
 * written for each item of a list, and not for false or an empty text.
 */
export function fillIn(file: string, values: Values): string {
  const text = readFileSync(packageFile(`config/${file}`), 'utf8')
  const fill = (line: string, own: Values): string =>
    line.replaceAll(/\$\{([a-z]+)\}/g, (_, name: string) => String(own[name]))
  return text.replaceAll(/^(?:@([\w-]+) ?)?(.*\n)/gm, (_, key: string | undefined, line: string) => {
    if (key === undefined) return fill(line, values)
    const items = [values[key] || []].flat()
    return items.map((item) => fill(line, { ...values, [key]: item })).join('')
  })
}
