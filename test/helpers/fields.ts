/** The names and values of header fields, as a flat list, from their text: each is `\r\nName: value`. */
export function fieldsOf(text: string): string[] {
  return text
    .split('\r\n')
    .slice(1)
    .flatMap((field) => {
      const colon = field.indexOf(': ')
      return [field.slice(0, colon), field.slice(colon + 2)]
    })
}
