import { sha256 } from '../../../src/authenticate/jose/sha256.ts'
import { calculateJwkThumbprint, type JWK } from 'jose'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { canonicalJwk, createVerifyProof } from '../../../src/authenticate/proof/dpop.ts'
import { makeKey, type TestAlgorithm } from '../../helpers/issuer.ts'

const thumbprint = (jwk: unknown) => sha256(canonicalJwk(jwk)!)

describe('the examples of the RFCs', () => {
  const RFC_KEY = {
    kty: 'EC',
    x: 'l8tFrhx-34tV3hRICRDY9zCkDlpBhF42UQUfWVAWBFs',
    y: '9VE4jf_Ok_o64zbTTlcuNJajHmt6v9TDVrU0CdvGRDA',
    crv: 'P-256',
  }
  /** RFC 9449 figure 12. */
  const RFC_PROOF =
    'eyJ0eXAiOiJkcG9wK2p3dCIsImFsZyI6IkVTMjU2IiwiandrIjp7Imt0eSI6IkVDIiwieCI6Imw4dEZyaHgtMzR0VjNoUklDUkRZOXpDa0RscEJoRjQyVVFVZldWQVdCRnMiLCJ5IjoiOVZFNGpmX09rX282NHpiVFRsY3VOSmFqSG10NnY5VERWclUwQ2R2R1JEQSIsImNydiI6IlAtMjU2In19.eyJqdGkiOiJlMWozVl9iS2ljOC1MQUVCIiwiaHRtIjoiR0VUIiwiaHR1IjoiaHR0cHM6Ly9yZXNvdXJjZS5leGFtcGxlLm9yZy9wcm90ZWN0ZWRyZXNvdXJjZSIsImlhdCI6MTU2MjI2MjYxOCwiYXRoIjoiZlVIeU8ycjJaM0RaNTNFc05yV0JiMHhXWG9hTnk1OUlpS0NBcWtzbVFFbyJ9.2oW9RP35yRqzhrtNP86L-Ey71EOptxRimPPToA1plemAgR6pxHF8y6-yqyVnmcw6Fy1dqd-jfxSYoMxhAJpLjA'
  const BOUND = {
    jkt: '0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I',
    ath: 'fUHyO2r2Z3DZ53EsNrWBb0xWXoaNy59IiKCAqksmQEo',
  }

  it('verify the proof of RFC 9449 section 7.1, at its time and place', async () => {
    onTestFinished(() => void vi.useRealTimers())
    const verify = createVerifyProof(['resource.example.org'])
    const at = (now: number, host: string) => {
      vi.setSystemTime(now)
      return verify(BOUND, {
        method: 'GET',
        scheme: 'https',
        host,
        path: '/protectedresource',
        proofs: [RFC_PROOF],
        certificate: () => undefined,
      })
    }
    expect(await at(1_562_262_618_000, 'resource.example.org')).not.toHaveProperty('error')
    expect(await at(1_562_262_618_000, 'resource.example.com')).toMatchObject({ error: 'invalid_dpop_proof' })
    expect(await at(1_562_262_679_000, 'resource.example.org')).toMatchObject({ error: 'invalid_dpop_proof' })
  })

  it('the examples of the RFCs have the thumbprints of RFC 9449 section 6.1, RFC 7638 section 3.1 and RFC 8037 appendix A.3', () => {
    expect(thumbprint(RFC_KEY)).toBe(BOUND.jkt)
    expect(
      thumbprint({
        kty: 'RSA',
        n: '0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw',
        e: 'AQAB',
        alg: 'RS256',
        kid: '2011-04-29',
      }),
    ).toBe('NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs')
    expect(thumbprint({ kty: 'OKP', crv: 'Ed25519', x: '11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo' })).toBe(
      'kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k',
    )
  })

  it.each(['ES256', 'RS256', 'EdDSA'] satisfies TestAlgorithm[])(
    'jose agrees on the thumbprint of an %s key',
    async (alg) => {
      const { jwk } = makeKey(alg)
      expect(thumbprint(jwk)).toBe(await calculateJwkThumbprint(jwk as JWK))
    },
  )
})
