import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'

const SHOPS = ['Corner Bakery', 'City Railways', 'Green Grocer', 'Book Cellar', 'Cinema Lumière']

const transactions = Array.from({ length: 60 }, (_, i) => ({
  id: `txn-${i + 1}`,
  accountId: i % 4 === 0 ? 'acc-2' : 'acc-1',
  amount: { value: -(350 + ((i * 7919) % 9000)), currency: 'GBP' },
  date: new Date(Date.UTC(2026, 0, 1 + i)).toISOString(),
  shortDescription: SHOPS[i % SHOPS.length],
  status: 'posted',
}))
const PAGE = 10

/** A small Data API, with and without `/v3`: transactions, and a sync that always succeeds. The gateway authenticates. */
export function createDataApi(): Server {
  return createServer((request, response) => {
    // The whole body is taken before the answer, as a real backend does.
    request.on('error', () => {}).on('end', () => answer(request, response))
    request.resume()
  })
}

function answer(request: IncomingMessage, response: ServerResponse): void {
  const url = new URL(request.url ?? '/', `http://${request.headers.host ?? 'localhost'}`)
  const [, name = '', id = ''] = /^(?:\/v3)?\/(\w+)(?:\/([^/]+))?$/.exec(url.pathname) ?? []
  const isRead = request.method === 'GET' || request.method === 'HEAD'
  if (isRead && name === 'transactions' && id === '') {
    send(response, 200, page(url))
  } else if (request.method === 'POST' && name === 'sync' && id !== '') {
    send(response, 200, { data: { syncId: crypto.randomUUID(), status: 'ok' }, meta: {} })
  } else {
    send(response, 404, { code: 'NotFound', message: 'Not Found' })
  }
}

function page(url: URL): object {
  const limit = Number(url.searchParams.get('limit')) || PAGE
  const offset = Number(url.searchParams.get('offset')) || 0
  const next = new URL(url)
  next.searchParams.set('offset', String(offset + limit))
  return {
    data: transactions.slice(offset, offset + limit),
    links: { self: url.href, ...(offset + limit < transactions.length && { next: next.href }) },
    meta: { total: transactions.length },
  }
}

function send(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'Content-Type': 'application/json' }).end(`${JSON.stringify(body)}\n`)
}
