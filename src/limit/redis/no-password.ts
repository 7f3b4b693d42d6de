import type { Redis } from 'ioredis'

const OPEN =
  'Redis has no password, although store.redis has one: anyone who reaches it can change the counters; set requirepass there.'

/** True for the answer to a password by a server that has none, which is not a failure. */
const hasNoPassword = ({ message }: Error): boolean => message.includes('without any password configured')

/**
 * Prevents that ioredis writes this answer to standard error, which has the lines of the log, at each
 * connection, also at those that a cluster makes of this one to read its slots.
 */
export function acceptOpenness(connection: Redis): Redis {
  const auth: (login: string) => Promise<'OK'> = connection.auth.bind(connection)
  const duplicate = connection.duplicate.bind(connection)
  return Object.assign(connection, {
    auth: (login: string) =>
      auth(login).catch((error: Error) => {
        if (!hasNoPassword(error)) throw error
        return 'OK' as const
      }),
    duplicate: (...override: Parameters<typeof duplicate>) => acceptOpenness(duplicate(...override)),
  })
}

/** Returns a warning if a password was sent to a server that has none. */
export async function warningOfOpenness(node: Redis): Promise<string | undefined> {
  const { username, password } = node.options
  if (username || !password) return undefined
  return await node.call('AUTH', password).then(
    () => undefined,
    (error: Error) => (hasNoPassword(error) ? OPEN : undefined),
  )
}
