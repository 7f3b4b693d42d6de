import { getCiphers } from 'node:tls'
import { z } from 'zod'
import { isSuiteOf13 } from '../../downstream/suites.ts'
import { asList } from '../../runtime/json.ts'
import { type Issue, issueAt, mustBe } from '../yaml/issue.ts'
import { pemFile } from './texts.ts'
import { atKey, coerced, list, stringThat } from './values.ts'

/** Suites that need what no listener has (a shared password or key, DH parameters). */
const NEVER_USED = /psk|srp|^dhe-/
const SUITES = new Set(getCiphers().filter((name) => !NEVER_USED.test(name)))

const EXAMPLE = 'ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384'
const CIPHERS = `the OpenSSL names of suites, separated by ":", such as ${EXAMPLE}`

/** Node.js lists the names in lower case; OpenSSL accepts only upper case. */
const isKnown = (name: string): boolean => name === name.toUpperCase() && SUITES.has(name.toLowerCase())

/** Accepts only names: a keyword such as HIGH, or an exclusion, does not say which suites it admits. */
const ciphers = stringThat((text) => {
  if (text === '') return `is empty; write ${CIPHERS}`
  const unknown = text.split(':').find((name) => !isKnown(name))
  if (unknown === undefined) return true
  return `has "${unknown}", which is not the name of a suite that can be used here; write ${CIPHERS}`
}, CIPHERS)

const crlFiles = list(pemFile, 1, 'a list of PEM files')
const CRL = 'the path of a PEM file or a list of paths'

/** The settings that all TLS listeners have. */
export const serverTls = {
  cert: pemFile,
  key: pemFile,
  clientCa: pemFile.optional(),
  crl: z.union([pemFile, crlFiles], mustBe(CRL)).transform(asList).optional(),
  minVersion: coerced(z.literal([1.2, 1.3], mustBe('1.2 or 1.3'))).prefault(1.2),
  ciphers: ciphers.optional(),
}

interface ServerTls {
  readonly clientCa?: string | undefined
  readonly crl?: readonly string[] | undefined
  readonly minVersion: 1.2 | 1.3
  readonly ciphers?: string | undefined
}

export function* serverTlsIssues({ clientCa, crl, minVersion, ciphers }: ServerTls): Generator<Issue> {
  if (crl !== undefined && clientCa === undefined)
    yield atKey('crl', 'needs clientCa: the authorities of the client certificates that it revokes')
  const of12 = ciphers?.split(':').find((name) => !isSuiteOf13(name))
  if (minVersion === 1.3 && of12 !== undefined)
    yield issueAt(['ciphers'], `has ${of12}, a suite of TLS 1.2, which "minVersion: 1.3" excludes; remove it`)
}
