import { ALLOW_ORIGIN, type CorsFields } from '../downstream/cors.ts'

const ALLOW_CREDENTIALS = 'access-control-allow-credentials'

/**
 * Returns the fields of an upstream's response, as a flat list, with the CORS fields of the gateway.
 * An upstream that sends `Access-Control-Allow-Origin` decides itself who may read its response;
 * only the gateway's own fields are exposed in addition. If the gateway decides, it also decides
 * about credentials. All other fields are kept: those that an upstream exposes remain exposed.
 */
export function addCorsFields(
  rawHeaders: readonly string[],
  { allow, expose }: CorsFields,
): readonly string[] {
  const allowsItself = rawHeaders.some((name, i) => i % 2 === 0 && name.toLowerCase() === ALLOW_ORIGIN)
  const added = allowsItself ? expose : [...allow, ...expose]
  const decides = !allowsItself && allow.length > 0
  const fields: string[] = []
  let vary = -1
  let varies = false
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = rawHeaders[i]!.toLowerCase()
    const value = rawHeaders[i + 1]!
    if (decides && name === ALLOW_CREDENTIALS) continue
    if (name === 'vary') {
      vary = fields.length + 1
      varies ||= namesOrigin(value)
    }
    fields.push(rawHeaders[i]!, value)
  }
  if (!varies && vary === -1) fields.push('Vary', 'Origin')
  else if (!varies) fields[vary] = fields[vary]!.trim() === '' ? 'Origin' : `${fields[vary]}, Origin`
  return [...fields, ...added]
}

const namesOrigin = (vary: string): boolean =>
  vary.split(',').some((name) => ['origin', '*'].includes(name.trim().toLowerCase()))
