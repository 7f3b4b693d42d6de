import { connect, createServer } from 'node:net'

// A Redis at a distance: forwards bytes, each half of the round trip later. Arguments: port of Redis, the round trip in ms.
// Listens on the port PORT, or writes the one that it got.
// A process of its own, which may block: Node's timers cannot wait for less than a millisecond, but Atomics.wait can.

/** Maximum time without a look at the sockets, in milliseconds. */
const NAP_MS = 0.1
const [port, roundTripMs] = process.argv.slice(2).map(Number)
const clock = new Int32Array(new SharedArrayBuffer(4))
/** The bytes on their way, in the order in which they arrive, with the instant of their arrival. */
const onTheWay = []

function deliver() {
  const waitMs = onTheWay[0].dueAt - performance.now()
  if (waitMs > 0) Atomics.wait(clock, 0, 0, Math.min(waitMs, NAP_MS))
  while (onTheWay.length > 0 && onTheWay[0].dueAt <= performance.now()) {
    const { to, chunk } = onTheWay.shift()
    to.write(chunk)
  }
  if (onTheWay.length > 0) setImmediate(deliver)
}

function carry(to, chunk) {
  onTheWay.push({ to, chunk, dueAt: performance.now() + roundTripMs / 2 })
  if (onTheWay.length === 1) setImmediate(deliver)
}

const server = createServer((near) => {
  const far = connect(port, '127.0.0.1')
  for (const [from, to] of [
    [near, far],
    [far, near],
  ]) {
    from.setNoDelay(true)
    from.on('data', (chunk) => carry(to, chunk))
    from.on('close', () => to.destroy())
    from.on('error', () => {})
  }
})
server.listen(Number(process.env.PORT ?? 0), '127.0.0.1', () =>
  process.stdout.write(String(server.address().port)),
)
