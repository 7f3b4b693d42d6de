/** The suites that RFC 9325 section 4.2 recommends for TLS 1.2: forward secrecy and AEAD only. */
const SUITES_OF_1_2 = [
  'ECDHE-ECDSA-AES128-GCM-SHA256',
  'ECDHE-RSA-AES128-GCM-SHA256',
  'ECDHE-ECDSA-AES256-GCM-SHA384',
  'ECDHE-RSA-AES256-GCM-SHA384',
]
const SUITES_OF_1_3 = ['TLS_AES_128_GCM_SHA256', 'TLS_AES_256_GCM_SHA384', 'TLS_CHACHA20_POLY1305_SHA256']

/** Returns true for the name of a suite of TLS 1.3. */
export const isSuiteOf13 = (name: string): boolean => name.startsWith('TLS_')

/**
 * Returns the suites of a listener, by the OpenSSL names of `ciphers`. Node.js disables a version
 * without a suite, so both versions get some.
 */
export function suitesOf(ciphers = ''): string {
  const named = ciphers.split(':').filter(Boolean)
  const of13 = named.filter(isSuiteOf13)
  const of12 = named.filter((name) => !isSuiteOf13(name))
  const suites = [...(of13.length > 0 ? of13 : SUITES_OF_1_3), ...(of12.length > 0 ? of12 : SUITES_OF_1_2)]
  return suites.join(':')
}
