import { type NumberSource, Unsettled, type Used } from './actual.ts'
import { findInBody } from './body-end.ts'
import type { Name } from './json-end.ts'
import { pointsOf, pointsOfBytes } from './points.ts'
import { Tail } from './tail.ts'

/** Bytes of the bodies of a call. */
export interface BodyBytes {
  readonly request: number
  readonly response: number
}

/** Reads from the response of one call what it used. Changes nothing of it, and never throws. */
export class ResponseReading {
  /** True if a head was read. */
  hasHead = false
  readonly #readsBody: boolean
  #rawHeaders: readonly string[] = []
  /** Why the body has no number, by the head. */
  #obstacle: string | undefined
  #isEventStream = false
  /** The end of the body; undefined if it is not read. */
  #tail: Tail | undefined

  /** `readsBody` is true if a number is to be read from the body. */
  constructor(readsBody: boolean) {
    this.#readsBody = readsBody
  }

  /** Reads the head: its status and its fields, a flat list of names and values. */
  readHead(status: number, rawHeaders: readonly string[], isBodiless: boolean): void {
    this.hasHead = true
    this.#rawHeaders = rawHeaders
    if (!this.#readsBody) return
    let type = ''
    let coding = ''
    for (let i = 0; i < rawHeaders.length; i += 2) {
      const { length } = rawHeaders[i]!
      if (length !== CONTENT_TYPE.length && length !== CONTENT_ENCODING.length) continue
      const name = rawHeaders[i]!.toLowerCase()
      if (name === CONTENT_TYPE) type = rawHeaders[i + 1]!
      else if (name === CONTENT_ENCODING) coding += rawHeaders[i + 1]!.toLowerCase()
    }
    const format = formatOf(type)
    this.#isEventStream = format === 'events'
    if (isBodiless) this.#obstacle = 'the response has no body'
    else if (status === PARTIAL) this.#obstacle = 'the response is a part of a body'
    else if (coding !== '' && coding !== 'identity')
      this.#obstacle = 'the response is compressed, although that was not asked for'
    else if (format === 'other') this.#obstacle = 'the response is neither JSON nor an event stream'
    else this.#tail = new Tail()
  }

  readChunk(chunk: Buffer): void {
    this.#tail?.push(chunk)
  }

  /** Returns the number of a response field, which is known from the head on. */
  ofField(name: string): Used {
    const values = this.#field(name.toLowerCase())
    if (values.length === 0) return new Unsettled(`the response has no field ${name}`)
    if (values.length > 1) return new Unsettled(`the response has the field ${name} several times`)
    return pointsOf(values[0]!.trim()) ?? new Unsettled(`the field ${name} ${NOT_A_NUMBER}`)
  }

  /** Returns what a call used whose response is complete. */
  ofWhole({ json, names, field, bytes }: NumberSource, { request, response }: BodyBytes): Used {
    if (field !== undefined) return this.ofField(field)
    if (json !== undefined) return this.#ofBody(json, names)
    return pointsOfBytes((bytes === 'response' ? 0 : request) + (bytes === 'request' ? 0 : response))
  }

  #ofBody(path: string, names: readonly Name[]): Used {
    if (this.#obstacle !== undefined) return new Unsettled(this.#obstacle)
    const found = findInBody(this.#tail!, names, this.#isEventStream)
    if (found === undefined || found === 'null')
      return new Unsettled(`the end of the response has no ${path}`)
    return pointsOf(found) ?? new Unsettled(`${path} ${NOT_A_NUMBER}`)
  }

  /** Returns the values of the lines of a field, whose name is in lower case. */
  #field(name: string): string[] {
    const values: string[] = []
    for (let i = 0; i < this.#rawHeaders.length; i += 2) {
      const own = this.#rawHeaders[i]!
      if (own.length === name.length && own.toLowerCase() === name) values.push(this.#rawHeaders[i + 1]!)
    }
    return values
  }
}

const CONTENT_TYPE = 'content-type'
const CONTENT_ENCODING = 'content-encoding'
const EVENT_STREAM = /^text\/event-stream[\t ]*(?:;|$)/i
/** JSON (RFC 8259, RFC 6839), also as lines. */
const JSON_TYPE = /^(?:application|text)\/(?:[^;\t ]+\+)?(?:json|jsonl|ndjson|x-ndjson)[\t ]*(?:;|$)/i

/** Returns the format of a body by its `Content-Type`; JSON if that is empty. */
function formatOf(type: string): 'json' | 'events' | 'other' {
  if (type === '' || type === 'application/json') return 'json'
  if (EVENT_STREAM.test(type)) return 'events'
  return JSON_TYPE.test(type) ? 'json' : 'other'
}

/** RFC 9110 section 15.3.7. */
const PARTIAL = 206
const NOT_A_NUMBER = 'is not a number from 0 to 2^40'
