import { isObject, type JsonObject, parseObject } from '../../../runtime/json.ts'
import { type Line, type ReadLine, unreadable } from './call.ts'

/** Returns a reader of JSON lines, also after the prefix of a collector, by what reads an object. */
export function readerOfObjects(read: (line: JsonObject) => Line): ReadLine {
  return (text) => {
    const start = text.indexOf('{')
    const line = start === -1 ? undefined : parseObject(text.slice(start))
    return line === undefined ? unreadable('is not a JSON object') : read(line)
  }
}

/** Returns a member that is an object; an empty object for anything else. */
export const objectOf = (object: JsonObject, name: string): JsonObject => {
  const value = object[name]
  return isObject(value) ? value : {}
}

/** Returns a member that is a text; undefined for anything else. */
export const stringOf = (object: JsonObject, name: string): string | undefined => {
  const value = object[name]
  return typeof value === 'string' ? value : undefined
}
