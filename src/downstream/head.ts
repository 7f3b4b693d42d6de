import { added, NONE } from '../runtime/short-list.ts'

/** Every value of some fields; Node keeps only the first value of most, or joins them. */
export interface Head {
  readonly hosts: readonly string[]
  readonly authorization: readonly string[]
  readonly proofs: readonly string[]
  readonly overrides: readonly MethodOverride[]
}

/** A field by which frameworks replace the method of a POST, in lower case, and its value. */
interface MethodOverride {
  readonly field: string
  readonly value: string
}

/** Collects every value of `Host`, `Authorization` and `DPoP`, and of the fields that may replace the method. */
export function readHead(rawHeaders: readonly string[]): Head {
  let hosts: string[] = NONE
  let authorization: string[] = NONE
  let proofs: string[] = NONE
  let overrides: MethodOverride[] = NONE
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = rawHeaders[i]!
    // Most fields have other lengths, and are not read further.
    if (name.length !== 4 && name.length !== 13 && name.length !== 17 && name.length !== 22) continue
    const value = rawHeaders[i + 1]!
    const field = name.toLowerCase()
    switch (field) {
      case 'host':
        hosts = added(hosts, value)
        break
      case 'authorization':
        authorization = added(authorization, value)
        break
      case 'dpop':
        proofs = added(proofs, value)
        break
      case 'x-http-method':
      case 'x-method-override':
      case 'x-http-method-override':
        overrides = added(overrides, { field, value })
    }
  }
  return { hosts, authorization, proofs, overrides }
}

/** Returns the first field that asks for another method than that of the request; a blank one asks for none. */
export const contradictingOverride = ({ overrides }: Head, method: string): string | undefined =>
  overrides.find(({ value }) => {
    const methods = value.split(',').map((one) => one.trim().toUpperCase())
    return methods.some((one) => one !== '' && one !== method)
  })?.field
