import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { listenLocally } from './local-server.ts'

/** A request to the introspection endpoint. */
export interface Asked {
  readonly authorization: string | undefined
  readonly form: Readonly<Record<string, string>>
  readonly request: IncomingMessage
}

/** A response: a document with status 200, or a function that responds. */
export type Answer = object | ((response: ServerResponse, asked: Asked) => void)

export interface IntrospectionServer {
  readonly url: string
  readonly asked: Asked[]
  /** The response to the next requests. */
  answer: Answer
  /** Pending requests. */
  open(): number
  close(): Promise<void>
}

/** Starts a real introspection endpoint on a free port, with responses chosen by the test. */
export async function startIntrospection(): Promise<IntrospectionServer> {
  let open = 0
  const server = createServer((request, response) => {
    open++
    response.on('close', () => open--)
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      const form = Object.fromEntries(new URLSearchParams(Buffer.concat(chunks).toString()))
      const asked = { authorization: request.headers.authorization, form, request }
      self.asked.push(asked)
      if (typeof self.answer === 'function') self.answer(response, asked)
      else response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(self.answer))
    })
  })
  const { url, close } = await listenLocally(server)
  const self: IntrospectionServer = {
    url: `${url}/introspect`,
    asked: [],
    answer: { active: false },
    open: () => open,
    close,
  }
  return self
}
