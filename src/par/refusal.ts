import { badRequest, Refusal } from '../errors.ts'

/** 400 `invalid_request` (RFC 6749 section 5.2). Every description here is ASCII without quotes and backslashes, as that section asks. */
export function invalidRequest(description: string): Refusal {
  return badRequest(description, { oauthError: 'invalid_request' })
}

/** 400 `invalid_request_object` (RFC 9101 section 6). */
export function invalidRequestObject(description: string): Refusal {
  return badRequest(description, { oauthError: 'invalid_request_object' })
}

const NOT_QUOTABLE = /[^ !#-[\]-~]/g

/** 401 `invalid_client`, with a challenge of `realm` for a client that used the Authorization header (RFC 6749 section 5.2). */
export function invalidClient(description: string, realm: string | undefined): Refusal {
  return new Refusal('Unauthorized', description, {
    oauthError: 'invalid_client',
    ...(realm !== undefined && {
      headers: { 'WWW-Authenticate': `Basic realm="${realm.replace(NOT_QUOTABLE, '')}"` },
    }),
  })
}
