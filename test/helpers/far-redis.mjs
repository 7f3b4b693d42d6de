import { connect, createServer } from 'node:net'

// Passes bytes between a gateway and a Redis, each so many milliseconds late. Arguments: port of Redis, milliseconds.
// A process of its own, so that a busy test makes no Redis slow.
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
