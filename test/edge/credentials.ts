const encode = (value: unknown): string =>
  Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)).toString('base64url')

/** Returns a valid token with one part replaced. */
const withPart =
  (index: 0 | 1 | 2, change: (part: string) => string) =>
  (good: string): string =>
    `Bearer ${good
      .split('.')
      .map((part, i) => (i === index ? change(part) : part))
      .join('.')}`
const json = (change: (members: Record<string, unknown>) => unknown) => (part: string) =>
  encode(change(JSON.parse(Buffer.from(part, 'base64url').toString()) as Record<string, unknown>))
/** Claims that the signature does not cover. */
const claims = (members: Record<string, unknown>) =>
  withPart(
    1,
    json((old) => ({ ...old, ...members })),
  )
const header = (members: Record<string, unknown>) =>
  withPart(
    0,
    json((old) => ({ ...old, ...members })),
  )

const flipped = (part: string, at: number): string => {
  const i = at < 0 ? part.length + at : at
  return part.slice(0, i) + (part[i] === 'A' ? 'B' : 'A') + part.slice(i + 1)
}

/** Invalid values of `Authorization`, made from a valid token if needed. */
export const BAD_CREDENTIALS: Readonly<Record<string, (good: string) => string>> = {
  nothing: () => '',
  'no token': () => 'Bearer',
  'a token without a scheme': (good) => good,
  'a tab in place of the blank': (good) => `Bearer\t${good}`,
  'a comma behind it': (good) => `Bearer ${good},`,
  'a list of two': (good) => `Bearer ${good}, Bearer ${good}`,
  'two tokens': (good) => `Bearer ${good} ${good}`,
  'an equals sign': (good) => `Bearer=${good}`,
  'a colon': (good) => `Bearer: ${good}`,
  quoted: (good) => `Bearer "${good}"`,
  'a parameter': (good) => `Bearer token=${good}`,
  'a blank within': (good) => `Bearer ${good.slice(0, 50)} ${good.slice(50)}`,
  'percent-encoded': (good) => `Bearer ${good.replaceAll('.', '%2E')}`,
  'Bearer twice': (good) => `Bearer Bearer ${good}`,
  'another scheme': (good) => `Token ${good}`,
  'a scheme that begins alike': (good) => `Bearers ${good}`,
  Basic: () => `Basic ${Buffer.from('client:secret').toString('base64')}`,
  'Basic with the token': (good) => `Basic ${Buffer.from(`${good}:`).toString('base64')}`,
  'DPoP without a proof': (good) => `DPoP ${good}`,
  Digest: () => 'Digest username="a", realm="b"',
  Negotiate: () => 'Negotiate YIIB',
  null: () => 'Bearer null',
  undefined: () => 'Bearer undefined',
  true: () => 'Bearer true',
  dots: () => 'Bearer ..',
  'four dots': () => 'Bearer ....',
  'three letters': () => 'Bearer a.b.c',
  'an opaque token': () => 'Bearer 2YotnFZFEjr1zCsicMWpAA',
  'JSON for a token': () => `Bearer ${encode({ client_id: 'a' })}`,
  'an SQL injection': () => "Bearer ' OR 1=1 --",
  'bytes beyond ASCII': (good) => `Bearer ${good}\u00e9`,
  'eight thousand dots': () => `Bearer ${'.'.repeat(8000)}`,
  'eight thousand letters': () => `Bearer ${'A'.repeat(8000)}`,
  'eight thousand equals signs': () => `Bearer A${'='.repeat(8000)}`,
  'no signature': withPart(2, () => ''),
  'no claims': withPart(1, () => ''),
  'no header': withPart(0, () => ''),
  'two parts': (good) => `Bearer ${good.split('.').slice(0, 2).join('.')}`,
  'four parts': (good) => `Bearer ${good}.${good.split('.')[2]}`,
  'five parts': (good) => `Bearer ${good}.a.b`,
  'parts in another order': (good) => `Bearer ${good.split('.').toReversed().join('.')}`,
  'a signature with padding': (good) => `Bearer ${good}==`,
  'a signature with one bit more': withPart(2, (part) => `${part}A`),
  'a signature with one byte less': withPart(2, (part) => part.slice(0, -2)),
  'a signature twice': withPart(2, (part) => part + part),
  'a signature of zeros': withPart(2, (part) => 'A'.repeat(part.length)),
  'a signature changed at its start': withPart(2, (part) => flipped(part, 0)),
  'a signature changed at its end': withPart(2, (part) => flipped(part, -3)),
  'a signature in hexadecimal': withPart(2, (part) => Buffer.from(part, 'base64url').toString('hex')),
  'a signature in upper case': withPart(2, (part) => part.toUpperCase()),
  'a payload with padding': withPart(1, (part) => `${part}=`),
  'a payload twice': withPart(1, (part) => part + part),
  'a payload that is not JSON': withPart(1, () => encode('{"iss":')),
  'a payload that is a list': withPart(1, () => encode([])),
  'a payload that is null': withPart(1, () => encode('null')),
  'a payload of brackets': withPart(1, () => encode('['.repeat(3000))),
  'a payload that is not UTF-8': withPart(1, () => Buffer.of(0x7b, 0xff, 0x7d).toString('base64url')),
  'another client': claims({ client_id: 'other' }),
  'a client by __proto__': withPart(1, () => encode('{"__proto__":{"client_id":"a"}}')),
  'another user': claims({ sub: 'other' }),
  'a later exp': claims({ exp: 4_000_000_000 }),
  'an exp that is not a number': claims({ exp: '1e400' }),
  'an earlier nbf': claims({ nbf: 0 }),
  'another scope': claims({ scope: 'admin' }),
  'another audience': claims({ aud: ['a', 'b'] }),
  'another issuer': claims({ iss: 'https://evil.example' }),
  'a claim twice': withPart(1, (part) =>
    encode(Buffer.from(part, 'base64url').toString().replace('{', '{"client_id":"other",')),
  ),
  'blanks in the JSON': withPart(1, (part) => encode(`${Buffer.from(part, 'base64url').toString()} `)),
  'alg none': header({ alg: 'none' }),
  'alg NONE': header({ alg: 'NONE' }),
  'alg none, no signature': (good) => withPart(2, () => '')(header({ alg: 'none' })(good).slice(7)),
  'alg HS256': header({ alg: 'HS256' }),
  'alg ES384': header({ alg: 'ES384' }),
  'alg in lower case': header({ alg: 'es256' }),
  'alg that is a list': header({ alg: ['ES256'] }),
  'alg that is an object': header({ alg: { toString: 'ES256' } }),
  'alg that is a number': header({ alg: 0 }),
  'no alg': header({ alg: undefined }),
  'another kid': header({ kid: 'other' }),
  'a kid that is a path': header({ kid: '../../../dev/null' }),
  'a kid that is a member of every object': header({ kid: 'constructor' }),
  'a kid that is an object': header({ kid: {} }),
  'a kid of 6 kB': header({ kid: 'x'.repeat(6000) }),
  'a jku': header({ jku: 'http://127.0.0.1:1/jwks' }),
  'an x5u': header({ x5u: 'http://127.0.0.1:1/cert' }),
  'a jwk': header({ jwk: { kty: 'oct', k: 'AAAA' } }),
  'a crit': header({ crit: ['exp'] }),
  'b64 false': header({ b64: false, crit: ['b64'] }),
  zip: header({ zip: 'DEF' }),
  'an encrypted one': header({ alg: 'dir', enc: 'A128GCM' }),
  'a typ of another kind': header({ typ: 'dpop+jwt' }),
  'a header that is a list': withPart(0, () => encode([])),
  'a header that is null': withPart(0, () => encode('null')),
  'a header of brackets': withPart(0, () => encode('['.repeat(3000))),
}
