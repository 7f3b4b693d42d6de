import { type Framing, HIDDEN, LAST, LAST_SEEN, request, chunk, END, CHUNKED, no } from './wire.ts'

const FORM = 'client_id=c&scope=openid&redirect_uri=https%3A%2F%2Fc.example%2F&response_type=code'
const FORM_TYPE = 'Content-Type: application/x-www-form-urlencoded'

/** A push needs no token. */
const push = (fields: readonly string[], body: string): string =>
  request('POST /par/CASE/request', fields, body).replace('Authorization: Bearer TOKEN\r\n', '')

export const pushes: readonly Framing[] = [
  {
    name: 'push: chunks become a length',
    bytes: [push([CHUNKED, FORM_TYPE], chunk(FORM) + END) + LAST],
    answers: [200, 200],
    reaches: [`POST /par/CASE/request ${FORM}`, LAST_SEEN],
  },
  {
    name: 'push: a request within the form is form',
    bytes: [
      push([FORM_TYPE, `Content-Length: ${FORM.length + 7 + HIDDEN.length}`], `${FORM}&extra=${HIDDEN}`) +
        LAST,
    ],
    answers: [200, 200],
    reaches: [`POST /par/CASE/request ${FORM}&extra=${HIDDEN}`, LAST_SEEN],
  },
  no('push: two framings', push([CHUNKED, FORM_TYPE, 'Content-Length: 3'], END + HIDDEN)),
  no('push: an odd coding', push(['Transfer-Encoding: , chunked', FORM_TYPE], chunk(FORM) + END + HIDDEN)),
  no('push: a broken chunk', push([CHUNKED, FORM_TYPE], `zz\r\n${END}${HIDDEN}`)),
  no('push: too many bytes', push([FORM_TYPE, 'Content-Length: 3000'], `${FORM}${HIDDEN}`), 413),
  no(
    'push: too many chunks',
    push([CHUNKED, FORM_TYPE], `${chunk('x'.repeat(1500)).repeat(2)}${END}${HIDDEN}`),
    413,
  ),
  {
    name: 'push: breaks off',
    bytes: [push([FORM_TYPE, 'Content-Length: 300'], FORM)],
    answers: [400],
    ends: true,
  },
]
