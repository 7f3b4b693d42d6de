import { connect, createServer } from 'node:net'

// Forwards bytes between a gateway and a Redis with a delay. Arguments: port of Redis, delay in milliseconds.
// An own process, so that a busy test does not slow Redis.
const [port, ms] = process.argv.slice(2).map(Number)
const server = createServer((near) => {
  const far = connect(port, '127.0.0.1')
  for (const [from, to] of [
    [near, far],
    [far, near],
  ]) {
    from.setNoDelay(true)
    from.on('data', (chunk) => (ms === 0 ? to.write(chunk) : setTimeout(() => to.write(chunk), ms / 2)))
    from.on('close', () => to.destroy())
    from.on('error', () => {})
  }
})
server.listen(0, '127.0.0.1', () => process.stdout.write(String(server.address().port)))
