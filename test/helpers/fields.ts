/** Parses header fields, each `\r\nName: value`, into a flat list of names and values. */
export function fieldsOf(text: string): string[] {
  return text
    .split('\r\n')
    .slice(1)
    .flatMap((field) => {
      const colon = field.indexOf(': ')
      return [field.slice(0, colon), field.slice(colon + 2)]
    })
}

/** Returns the fields of a text for `completeHead` as an object. Throws if a name occurs twice. */
export function fieldsObject(text: string): Record<string, string> {
  const list = fieldsOf(text)
  const fields: Record<string, string> = {}
  for (let i = 0; i < list.length; i += 2) {
    if (Object.hasOwn(fields, list[i]!)) throw new Error(`twice: ${list[i]}`)
    fields[list[i]!] = list[i + 1]!
  }
  return fields
}

/** Returns fields as text for `completeHead`. */
export const textOf = (fields: Readonly<Record<string, string | string[] | undefined>>): string =>
  Object.entries(fields)
    .flatMap(([name, values = []]) => [values].flat().map((value) => `\r\n${name}: ${value}`))
    .join('')
