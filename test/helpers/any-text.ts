import fc from 'fast-check'

const codePoint = fc
  .oneof(fc.nat(0x7f), fc.nat(0x10_ffff))
  .filter((code) => code < 0xd800 || code > 0xdfff)
  .map((code) => String.fromCodePoint(code))

/** Any text without lone surrogates. The unit `binary` of fast-check takes 0.7 s in each process. */
export const anyText = (constraints: { minLength?: number; maxLength?: number } = {}) =>
  fc.string({ ...constraints, unit: codePoint })
