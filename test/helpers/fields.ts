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
