import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'

const SHOPS = ['Corner Bakery', 'City Railways', 'Green Grocer', 'Book Cellar', 'Cinema Lumière']

const accounts = [
  { id: 'acc-1', accountName: 'Current account', currency: 'GBP', balance: { amount: { value: 124_350 } } },
  { id: 'acc-2', accountName: 'Savings', currency: 'GBP', balance: { amount: { value: 1_250_000 } } },
]
const transactions = Array.from({ length: 60 }, (_, i) => ({
  id: `txn-${i + 1}`,
  accountId: i % 4 === 0 ? 'acc-2' : 'acc-1',
  amount: { value: -(350 + ((i * 7919) % 9000)), currency: 'GBP' },
  date: new Date(Date.UTC(2026, 0, 1 + i)).toISOString(),
  shortDescription: SHOPS[i % SHOPS.length],
  status: 'posted',
}))
const COLLECTIONS = new Map<string, readonly unknown[]>(Object.entries({ accounts, transactions }))
const PAGE = 10

/** A small Data API, with and without `/v3`: accounts, transactions, and a sync that always succeeds. The gateway authenticates. */
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
  const collection = id === '' ? COLLECTIONS.get(name) : undefined
  if (collection !== undefined && (request.method === 'GET' || request.method === 'HEAD')) {
    send(response, 200, page(collection, url))
  } else if (request.method === 'POST' && name === 'sync' && id !== '') {
    send(response, 200, { data: { syncId: crypto.randomUUID(), status: 'ok' }, meta: {} })
  } else {
    send(response, 404, { code: 'NotFound', message: 'Not Found' })
  }
}

function page(collection: readonly unknown[], url: URL): object {
  const limit = Number(url.searchParams.get('limit')) || PAGE
  const offset = Number(url.searchParams.get('offset')) || 0
  const next = new URL(url)
  next.searchParams.set('offset', String(offset + limit))
  return {
    data: collection.slice(offset, offset + limit),
    links: { self: url.href, ...(offset + limit < collection.length && { next: next.href }) },
    meta: { total: collection.length },
  }
}

function send(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'Content-Type': 'application/json' }).end(`${JSON.stringify(body)}\n`)
}
