import { createHmac, createPublicKey, randomUUID } from 'node:crypto'
import { makeKey, signJws, type TestIssuer, type TestKey } from '../../helpers/issuer.ts'

/** The key of the forger. */
export const mallory = makeKey('RS256', 'mallory')
const malloryEc = makeKey('ES256', 'mallory')

type Forgeries = Readonly<Record<string, () => string>>

const encode = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url')
const now = (): number => Math.floor(Date.now() / 1000)
const ORDER_TWICE = Buffer.from(
  'ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551'.repeat(2),
  'hex',
)

function replaceSignature(token: string, signature: Buffer): string {
  return `${token.slice(0, token.lastIndexOf('.'))}.${signature.toString('base64url')}`
}

/** Creates forged tokens of an issuer by name, each when its function is called, and the functions that sign them. `trapUrl` is a JWK Set of the forger's. */
export function createForgeries(issuer: TestIssuer, trapUrl: string) {
  const { token, audience } = issuer
  const rsa = issuer.key('RS256')
  const claims = (): Record<string, unknown> => ({
    iss: issuer.issuer,
    aud: audience,
    client_id: 'client-1',
    exp: now() + 300,
  })
  /** Signed by an issuer's key; the kid is that key's. */
  const forgedBy = (key: TestKey, header: object): string =>
    signJws({ alg: key.alg, typ: 'at+jwt', ...header }, claims(), key)
  /** Signed by the issuer, over any payload. */
  const signed = (payload: unknown, header: object = {}): string => {
    return signJws({ alg: 'RS256', kid: rsa.kid, typ: 'at+jwt', ...header }, payload, rsa)
  }
  const unsigned = (alg: unknown, signature = ''): string =>
    `${encode({ alg, typ: 'at+jwt', kid: rsa.kid })}.${encode(claims())}.${signature}`
  /** An HMAC keyed by public data. */
  function mac(secret: string | Buffer, alg = 'HS256', header: object = {}): string {
    const input = `${encode({ alg, typ: 'at+jwt', ...header })}.${encode(claims())}`
    return `${input}.${createHmac('sha256', secret).update(input).digest('base64url')}`
  }
  const publicPem = (): string =>
    createPublicKey(rsa.privateKey).export({ type: 'spki', format: 'pem' }).toString()

  /** Tokens that jose refuses as well. */
  const forged: Forgeries = {
    'alg none, no signature': () => unsigned('none'),
    'alg none with a signature': () => unsigned('none', 'AAAA'),
    'alg NONE': () => unsigned('NONE', 'AAAA'),
    'alg nOnE': () => unsigned('nOnE', 'AAAA'),
    'no alg': () => unsigned(undefined, 'AAAA'),
    'alg that is a list': () => unsigned(['RS256'], 'AAAA'),
    'alg in lower case': () => token({}, { header: { alg: 'ps256' } }),
    'alg that the list leaves out': () => token({}, { alg: 'RS256', header: { alg: 'RS512' } }),
    'an HMAC by the public key as PEM': () => mac(publicPem(), 'HS256', { kid: rsa.kid }),
    'an HMAC by the public key as DER': () =>
      mac(createPublicKey(rsa.privateKey).export({ type: 'spki', format: 'der' })),
    'an HMAC by the public key as JWK': () => mac(JSON.stringify(rsa.jwk)),
    'an HMAC by nothing': () => mac(''),
    'an HMAC that calls itself RS256': () => mac(publicPem(), 'RS256', { kid: rsa.kid }),
    'RS256 with the key for PS256': () => token({}, { alg: 'PS256', header: { alg: 'RS256' } }),
    'ES256 with the kid of an RSA key': () => token({}, { alg: 'ES256', header: { kid: rsa.kid } }),
    'a key of our own, no kid': () => forgedBy(mallory, {}),
    'a key of our own, its kid': () => forgedBy(mallory, { kid: 'mallory' }),
    'a key of our own, the issuer’s kid': () => forgedBy(mallory, { kid: rsa.kid }),
    'a kid that is a path': () => forgedBy(mallory, { kid: '../../../../dev/null' }),
    'a kid that is a query': () => forgedBy(mallory, { kid: "x' UNION SELECT 'AA" }),
    'a kid that is a URL': () => forgedBy(mallory, { kid: trapUrl }),
    'a kid that is __proto__': () => forgedBy(mallory, { kid: '__proto__' }),
    'a kid that is constructor': () => forgedBy(mallory, { kid: 'constructor' }),
    'a kid that is a number': () => forgedBy(mallory, { kid: 0 }),
    'a kid that is null': () => forgedBy(mallory, { kid: null }),
    'an embedded jwk': () => forgedBy(mallory, { jwk: mallory.jwk }),
    'an embedded jwk and its kid': () => forgedBy(mallory, { jwk: mallory.jwk, kid: 'mallory' }),
    'an embedded EC jwk': () => forgedBy(malloryEc, { jwk: malloryEc.jwk }),
    'a jku': () => forgedBy(mallory, { jku: trapUrl, kid: 'mallory' }),
    'an x5u': () => forgedBy(mallory, { x5u: trapUrl }),
    'an x5c': () => forgedBy(mallory, { x5c: ['MIIB'] }),
    'an unknown crit': () => token({}, { header: { crit: ['exp'], exp: now() + 300 } }),
    'an empty crit': () => token({}, { header: { crit: [] } }),
    'a crit that is not a list': () => token({}, { header: { crit: 'b64' } }),
    'b64 false': () => token({}, { header: { crit: ['b64'], b64: false } }),
    'r and s of zero': () => replaceSignature(token({}, { alg: 'ES256' }), Buffer.alloc(64)),
    'r and s of the order': () => replaceSignature(token({}, { alg: 'ES256' }), ORDER_TWICE),
    'an ECDSA signature as DER': () =>
      replaceSignature(token({}, { alg: 'ES256' }), Buffer.from('3006020101020101', 'hex')),
    'an RSA signature of zeros': () => replaceSignature(token({}, { alg: 'RS256' }), Buffer.alloc(256)),
    'an RSA signature of one': () =>
      replaceSignature(token({}, { alg: 'RS256' }), Buffer.concat([Buffer.alloc(255), Buffer.of(1)])),
    'an EdDSA signature of zeros': () => replaceSignature(token({}, { alg: 'EdDSA' }), Buffer.alloc(64)),
    'another token’s signature': () =>
      `${token().split('.').slice(0, 2).join('.')}.${token({ client_id: 'other' }).split('.')[2]}`,
    'another client’s payload': () => {
      const [head, , signature] = token().split('.')
      return `${head}.${encode({ ...claims(), client_id: 'other' })}.${signature}`
    },
    'another audience': () => token({ aud: 'https://other.example.com' }),
    'an audience that begins alike': () => token({ aud: `${audience}.evil.example` }),
    'a list of other audiences': () => token({ aud: ['a', 'b'] }),
    'an empty list of audiences': () => token({ aud: [] }),
    'no audience': () => token({ aud: undefined }),
    'an audience that is null': () => token({ aud: null }),
    'an empty audience': () => token({ aud: '' }),
    'an audience that is a number': () => token({ aud: 0 }),
    'an audience that is false': () => token({ aud: false }),
    'a list of nothing': () => token({ aud: [null] }),
    'an audience in a list in a list': () => token({ aud: [[audience]] }),
    'an audience that is an object': () => token({ aud: { 0: audience, length: 1 } }),
    'another issuer': () => token({ iss: 'https://identity.evil.example/oidc' }),
    'the issuer with a slash': () => token({ iss: `${issuer.issuer}/` }),
    'the issuer in a list': () => token({ iss: [issuer.issuer] }),
    'no issuer': () => token({ iss: undefined }),
    expired: () => token({ exp: now() - 60 }),
    'expired a leeway ago': () => token({ exp: now() - 6 }),
    'no exp': () => token({ exp: undefined }),
    'an exp that is a string': () => token({ exp: String(now() + 300) }),
    'an exp that is null': () => token({ exp: null }),
    'an exp that is a list': () => token({ exp: [now() + 300] }),
    'not yet valid': () => token({ nbf: now() + 60 }),
    'an nbf that is a string': () => token({ nbf: 'now' }),
    'an iat that is a string': () => token({ iat: 'now' }),
    'a list for a payload': () => signed([claims()]),
    'null for a payload': () => signed(null),
    'a string for a payload': () => signed('claims'),
    'an empty payload': () => signed(Buffer.alloc(0)),
    'a payload that is not JSON': () => signed(Buffer.from('{"iss":')),
    'a payload that is not UTF-8': () =>
      signed(
        Buffer.concat([
          Buffer.from(JSON.stringify(claims()).slice(0, -1)),
          Buffer.from([0x2c, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]),
        ]),
      ),
    'a payload of a thousand brackets': () => signed(Buffer.from('['.repeat(1000))),
    'an encrypted token': () => `${encode({ alg: 'RSA-OAEP', enc: 'A256GCM' })}.AAAA.AAAA.AAAA.AAAA`,
    'an opaque token': () => 'c29tZXRoaW5nIGVsc2U',
    'a client assertion': () => {
      const assertion = {
        iss: 'client-1',
        sub: 'client-1',
        aud: issuer.issuer,
        exp: now() + 60,
        jti: randomUUID(),
      }
      return signJws({ alg: 'RS256', kid: 'mallory' }, assertion, mallory)
    },
    'an id_token': () => token({ aud: 'client-1', nonce: 'n', at_hash: 'h' }, { header: { typ: 'JWT' } }),
  }

  /** Tokens that jose accepts if it checks only signature, issuer, audience and times. */
  const notAccess: Forgeries = {
    'an id_token for our audience too': () =>
      token({ aud: ['client-1', audience], nonce: 'n' }, { header: { typ: undefined } }),
    'an id_token from the authorisation endpoint': () => token({ c_hash: 'h' }, { header: { typ: 'JWT' } }),
    'a logout token': () => token({ events: {} }, { header: { typ: 'logout+jwt' } }),
    'a logout token without typ': () => token({ events: {} }, { header: { typ: undefined } }),
    'Cognito’s ID token': () => token({ token_use: 'id' }, { header: { typ: undefined } }),
    'a token_use that is a list': () => token({ token_use: ['access'] }),
    'Hydra’s refresh token': () => token({ token_use: 'refresh_token' }),
    'Keycloak’s ID token without nonce': () => token({ typ: 'ID', sub: 'u' }, { header: { typ: 'JWT' } }),
    'Keycloak’s refresh token': () => token({ typ: 'Refresh', sub: 'u' }, { header: { typ: 'JWT' } }),
    'Keycloak’s offline token': () => token({ typ: 'OFFLINE', sub: 'u' }, { header: { typ: 'JWT' } }),
    'Keycloak’s logout token': () => token({ typ: 'logout', sub: 'u' }, { header: { typ: 'JWT' } }),
    'an ID token of typ ID and header at+jwt': () => token({ typ: 'ID' }),
    'a nonce of typ ID': () => token({ typ: 'ID', nonce: 'n' }, { header: { typ: 'JWT' } }),
    'a nonce of typ Bearer in a list': () =>
      token({ typ: ['Bearer'], nonce: 'n' }, { header: { typ: 'JWT' } }),
    'an at_hash of typ Bearer': () => token({ typ: 'Bearer', at_hash: 'h' }, { header: { typ: 'JWT' } }),
    'a token_type of refresh tokens': () => token({ token_type: 'refresh' }, { header: { typ: 'JWT' } }),
    'a type of ID tokens': () => token({ type: 'id_token' }, { header: { typ: 'JWT' } }),
    'an authorisation response': () =>
      token({ code: 'c0de-of-a-user', state: 's' }, { header: { typ: 'JWT' } }),
    'an authorisation error': () => token({ error: 'access_denied' }, { header: { typ: undefined } }),
    'an authorisation response with tokens': () =>
      token({ access_token: 'SlAV32hkKG', state: 's' }, { header: { typ: 'JWT' } }),
    'a request object': () => token({}, { header: { typ: 'oauth-authz-req+jwt' } }),
    'a typed client assertion': () => token({}, { header: { typ: 'client-authentication+jwt' } }),
    'a DPoP proof': () => token({}, { header: { typ: 'dpop+jwt' } }),
    'an introspection answer': () => token({}, { header: { typ: 'token-introspection+jwt' } }),
    'a refresh token': () => token({}, { header: { typ: 'application/rt+jwt' } }),
    'a typ that is not a string': () => token({}, { header: { typ: ['at+jwt'] } }),
    'an empty typ': () => token({}, { header: { typ: '' } }),
    'bound to a DPoP key': () => token({ cnf: { jkt: 'x' } }),
    'bound to a certificate': () => token({ cnf: { 'x5t#S256': 'x' } }),
    'bound to nothing': () => token({ cnf: {} }),
    'bound to nothing that we know': () => token({ cnf: { kid: 'a' } }),
    'bound to false': () => token({ cnf: false }),
    'b64 true': () => token({}, { header: { crit: ['b64'], b64: true } }),
    'b64 without crit': () => token({}, { header: { b64: true } }),
    'no client': () => token({ client_id: undefined }),
    'an empty client': () => token({ client_id: '' }),
    'a client of 256 characters': () => token({ client_id: 'a'.repeat(256) }),
    'a client with a line feed': () => token({ client_id: 'client\n1' }),
    'a client with a NUL': () => token({ client_id: 'client-1\0' }),
    'a client with a DEL': () => token({ client_id: 'client\u007f1' }),
    'a client with a CSI': () => token({ client_id: '\u009b2Jclient-1' }),
    'a compressed payload': () => token({}, { header: { zip: 'DEF' } }),
    'an iat further ahead than the leeway': () => token({ iat: now() + 7 }),
    'a client that is a number': () => token({ client_id: 1 }),
    'a client that is a list': () => token({ client_id: ['client-1'] }),
    'a client with half a surrogate pair': () => token({ client_id: 'a\ud800' }),
    'a user with half a surrogate pair': () => token({ sub: '\udc00a' }),
    'a user that is a fraction': () => token({ sub: 7.5 }),
    'a user that is a number which others round to': () => token({ sub: 2 ** 53 }),
    'a user that is a list': () => token({ sub: ['u'] }),
    'a user that is false': () => token({ sub: false }),
    'a client that comes by __proto__': () =>
      signed(
        Buffer.from(
          JSON.stringify({ ...claims(), client_id: undefined }).replace(
            '{',
            '{"__proto__":{"client_id":"a"},',
          ),
        ),
      ),
  }

  /** Tokens without an audience, which `audienceOptional` accepts. */
  const withoutAudience = ['no audience', 'an audience that is null', 'an empty list of audiences']
  return { forged, notAccess, withoutAudience, claims, signed }
}
