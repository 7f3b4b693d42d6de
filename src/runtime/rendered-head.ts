import type { OutgoingMessage } from 'node:http'

/** The head of a message as Node.js keeps it until it is sent. */
interface RenderedHead {
  _header: string
}

/**
 * Adds fields to a head that is made and not sent, as text: each `\r\nName: value`. Node.js would search each for characters that
 * are not allowed, which those parsed or made here do not have. Not for fields that tell Node.js how to send the message:
 * `Connection`, `Content-Length`, `Date`.
 */
export function appendFields(message: OutgoingMessage, fields: string): void {
  const made = message as unknown as RenderedHead
  made._header = `${made._header.slice(0, -4)}${fields}\r\n\r\n`
}

/** Ends a message that announces this body, of Latin-1 alone, in one write: Node.js would write head, body and end as three pieces. */
export function endWithBody(message: OutgoingMessage, body: string): void {
  const made = message as unknown as RenderedHead
  made._header += body
  message.end()
}
