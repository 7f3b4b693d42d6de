import { addressOf, callOf, textOrNone } from './call.ts'
import { objectOf, readerOfObjects, stringOf } from './objects.ts'

/** Reads what Kong's plugins for logs write (`file-log`, `http-log`, …). The client is the consumer. */
export const readKong = readerOfObjects((line) => {
  const [request, consumer] = [objectOf(line, 'request'), objectOf(line, 'consumer')]
  if (line['started_at'] === undefined && line['latencies'] === undefined) return 'other'
  return callOf({
    time: line['started_at'],
    isArrival: true,
    tookMs: Number(objectOf(line, 'latencies')['request']),
    method: stringOf(request, 'method'),
    target: stringOf(request, 'uri'),
    host: textOrNone(objectOf(request, 'headers')['host']),
    client:
      textOrNone(consumer['custom_id']) ?? textOrNone(consumer['username']) ?? textOrNone(consumer['id']),
    ip: addressOf(line['client_ip']),
    status: Number(objectOf(line, 'response')['status']),
  })
})
