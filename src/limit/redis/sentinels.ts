import { type Redis, SentinelConnector } from 'ioredis'

interface Sentinel {
  readonly host?: string
  readonly port?: number
}

type ConnectToSentinel = (sentinel: Sentinel, options?: object) => Redis

/** How ioredis finds the master that sentinels name, telling `hear` why sentinels cannot be asked: left alone, it drops or prints that. */
export function hearingSentinels(hear: (error: Error) => void) {
  return class extends SentinelConnector {
    constructor(options: unknown) {
      super(options as ConstructorParameters<typeof SentinelConnector>[0])
      const inner = this as unknown as { connectToSentinel: ConnectToSentinel }
      const connect = inner.connectToSentinel.bind(this)
      inner.connectToSentinel = (sentinel, options) => {
        const client = connect(sentinel, options)
        client.on('error', (error) => {
          hear(new Error(`sentinel ${sentinel.host}:${sentinel.port}: ${error.message}`, { cause: error }))
        })
        return client
      }
    }
  }
}
