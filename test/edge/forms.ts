/** A request to the PAR endpoint. */
export interface Push {
  readonly type?: string
  readonly authorization?: string
  readonly encoding?: string
  /** Latin-1 text. */
  readonly body: string
}

const GOOD = 'client_id=c&scope=openid&redirect_uri=https%3A%2F%2Fc.example%2F&response_type=code'
const ASSERTION = 'client_assertion_type=urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer'
const without = (name: string): string =>
  GOOD.split('&')
    .filter((pair) => !pair.startsWith(`${name}=`))
    .join('&')
const basic = (text: string): string => `Basic ${Buffer.from(text, 'latin1').toString('base64')}`
const jwt = (claims: unknown, header: unknown = { alg: 'none' }): string =>
  `${Buffer.from(JSON.stringify(header)).toString('base64url')}.${Buffer.from(JSON.stringify(claims)).toString('base64url')}.`

/** Pushes of an unlisted client and of a signing client that the gateway itself refuses. */
export const BAD_PUSHES: Readonly<Record<string, Push>> = {
  nothing: { body: '' },
  'nothing but ampersands': { body: '&&&' },
  'nothing but equals signs': { body: '===' },
  JSON: { body: '{"client_id":"c"}' },
  'JSON with its content type': { type: 'application/json', body: '{"client_id":"c"}' },
  'no type': { type: '', body: GOOD },
  'a multipart form': { type: 'multipart/form-data; boundary=x', body: '--x--' },
  'a type that begins alike': { type: 'application/x-www-form-urlencodedx', body: GOOD },
  'two types': { type: 'application/x-www-form-urlencoded, application/json', body: GOOD },
  'UTF-16': { type: 'application/x-www-form-urlencoded; charset=utf-16', body: GOOD },
  'UTF-7': { type: 'application/x-www-form-urlencoded; charset=utf-7', body: GOOD },
  'a charset in open quotes': { type: 'application/x-www-form-urlencoded; charset="utf-8', body: GOOD },
  'an empty charset': { type: 'application/x-www-form-urlencoded; charset=""', body: GOOD },
  'two charsets': { type: 'application/x-www-form-urlencoded; charset=utf-8; charset=utf-7', body: GOOD },
  'a packed body': { encoding: 'gzip', body: GOOD },
  'another packed body': { encoding: 'br', body: GOOD },
  'a body packed in two ways': { encoding: 'identity, gzip', body: GOOD },
  'too many bytes': { body: `${GOOD}&state=${'x'.repeat(5000)}` },
  'too many parameters': { body: `${GOOD}${'&a='.repeat(101)}` },
  'a name too long': { body: `${GOOD}&${'x'.repeat(129)}=y` },
  ...Object.fromEntries(
    ['client_id', 'scope', 'redirect_uri', 'response_type'].flatMap((name) => [
      [`no ${name}`, { body: without(name) }],
      [`an empty ${name}`, { body: `${without(name)}&${name}=` }],
      [`${name} without a value`, { body: `${without(name)}&${name}` }],
      [`${name} twice`, { body: `${GOOD}&${name}=x` }],
      [
        `${name} twice, once escaped`,
        { body: `${GOOD}&%${name.charCodeAt(0).toString(16)}${name.slice(1)}=x` },
      ],
      [`${name} as a list`, { body: `${without(name)}&${name}[]=x` }],
      [`${name} in another case`, { body: `${without(name)}&${name.toUpperCase()}=x` }],
      [`${name} and another case`, { body: `${GOOD}&${name.toUpperCase()}=x` }],
      [`${name} and a dotted name`, { body: `${GOOD}&${name.replace('_', '.')}.=x` }],
    ]),
  ),
  'a scope without openid': { body: `${without('scope')}&scope=accounts` },
  'a scope that begins like openid': { body: `${without('scope')}&scope=openidx` },
  'a scope parted by a tab': { body: `${without('scope')}&scope=openid%09x` },
  request_uri: { body: `${GOOD}&request_uri=urn%3Aietf%3Aparams%3Aoauth%3Arequest_uri%3A1` },
  'an empty request_uri': { body: `${GOOD}&request_uri=` },
  'request_uri, escaped': { body: `${GOOD}&request%5Furi=x` },
  'request_uri behind a semicolon': { body: `${GOOD};request_uri=x` },
  'request_uri with a NUL': { body: `${GOOD}&request_uri%00=x` },
  'request_uri with a blank': { body: `${GOOD}&request_uri+=x` },
  'a NUL in a value': { body: `${GOOD}&state=a%00b` },
  'a raw NUL': { body: `${GOOD}&state=a\u0000b` },
  'a broken escape': { body: `${GOOD}&state=%zz` },
  'half an escape': { body: `${GOOD}&state=%4` },
  'broken UTF-8': { body: `${GOOD}&state=%ff` },
  'overlong UTF-8': { body: `${GOOD}&state=%c0%af` },
  'a lone surrogate': { body: `${GOOD}&state=%ed%a0%80` },
  'raw bytes that are not UTF-8': { body: `${GOOD}&state=\u00ff` },
  'a byte order mark': { body: `\u00ef\u00bb\u00bf${GOOD}` },
  'a UTF-16 body': { body: [...GOOD].join('\u0000') },
  'claims that are not JSON': { body: `${GOOD}&claims=x` },
  'claims that are a list': { body: `${GOOD}&claims=[]` },
  'claims without members': { body: `${GOOD}&claims={}` },
  'claims of a string': { body: `${GOOD}&claims={"id_token":"x"}` },
  'claims of brackets': { body: `${GOOD}&claims=${'%5B'.repeat(1000)}` },
  'two ways to authenticate': { authorization: basic('c:s'), body: `${GOOD}&client_secret=s` },
  'two other ways': { body: `${GOOD}&client_secret=s&${ASSERTION}&client_assertion=a.b.c` },
  'an assertion without its type': { body: `${GOOD}&client_assertion=a.b.c` },
  'a type without its assertion': { body: `${GOOD}&${ASSERTION}` },
  'an assertion of another type': { body: `${GOOD}&client_assertion_type=x&client_assertion=a.b.c` },
  'an assertion that is none': { body: `${GOOD}&${ASSERTION}&client_assertion=x` },
  'an assertion of another client': {
    body: `${GOOD}&${ASSERTION}&client_assertion=${jwt({ iss: 'd', sub: 'd' })}`,
  },
  'an assertion whose sub is a list': {
    body: `${GOOD}&${ASSERTION}&client_assertion=${jwt({ sub: ['c'] })}`,
  },
  'Basic of another client': { authorization: basic('d:s'), body: GOOD },
  'Basic without a colon': { authorization: basic('c'), body: GOOD },
  'Basic of an unknown client': { authorization: basic(':s'), body: GOOD },
  'Basic with a broken escape': { authorization: basic('c:%zz'), body: GOOD },
  'Basic of bytes that are not UTF-8': { authorization: basic('\u00ff:s'), body: GOOD },
  'Basic that is not base64': { authorization: 'Basic !!!', body: GOOD },
  'Basic without anything': { authorization: 'Basic', body: GOOD },
  'a bearer token': { authorization: 'Bearer x', body: GOOD },
  'an empty Authorization': { authorization: '', body: GOOD },
  'a client that signs and does not': { body: GOOD.replace('=c&', '=signer&') },
  'a client that signs and sends an empty object': { body: `${GOOD.replace('=c&', '=signer&')}&request=` },
  'a client that signs and sends an unsigned object': {
    body: `client_id=signer&request=${jwt({ iss: 'signer' })}`,
  },
  'a client that signs and sends garbage': { body: 'client_id=signer&request=x' },
  'a client that signs and sends five parts': { body: 'client_id=signer&request=a.b.c.d.e' },
  'a client that signs and sends another alg': {
    body: `client_id=signer&request=${jwt({}, { alg: 'HS256' })}AAAA`,
  },
  'a client that signs and sends brackets': {
    body: `client_id=signer&request=${Buffer.from('['.repeat(900)).toString('base64url')}.e30.AA`,
  },
}
