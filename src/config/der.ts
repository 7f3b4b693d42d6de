/** A value of DER (X.690), with its tag and length in `bytes`. */
export interface DerValue {
  readonly tag: number
  readonly bytes: Buffer
  readonly content: Buffer
}

/** Returns the values within a value. The bytes must be valid DER: OpenSSL has parsed them before. */
export function valuesIn(content: Buffer): readonly DerValue[] {
  const values: DerValue[] = []
  for (let at = 0; at < content.length;) {
    const first = content[at + 1]!
    const lengthBytes = first < 0x80 ? 0 : first & 0x7f
    const start = at + 2 + lengthBytes
    const length = lengthBytes === 0 ? first : content.readUIntBE(at + 2, lengthBytes)
    const bytes = content.subarray(at, start + length)
    values.push({ tag: content[at]!, bytes, content: content.subarray(start, start + length) })
    at = start + length
  }
  return values
}

const UTC_TIME = 0x17

/** Reads a UTCTime or GeneralizedTime (RFC 5280 section 4.1.2.5) → epoch milliseconds. */
export function instantOf({ tag, content }: DerValue): number {
  const digits = content.toString('latin1').replace('Z', '')
  // A year of two digits is between 1950 and 2049.
  const century = /^[5-9]/.test(digits) ? '19' : '20'
  const full = tag === UTC_TIME ? century + digits : digits
  const [, year, month, day, hour, minute, second] =
    /^(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)$/.exec(full) ?? []
  return Date.parse(`${year}-${month}-${day}T${hour}:${minute}:${second}Z`)
}
