import { Redis } from 'ioredis'

/** Emitted by a connection to which a password was given that nobody asks for. */
export const NEEDLESS = 'needless password'

type Auth = (this: Redis, ...args: unknown[]) => Promise<unknown>

const commands = Redis.prototype as unknown as { auth: Auth }
const { auth } = commands

// ioredis prints it on stderr; a cluster makes connections of its own, so it is heard of all of them here.
commands.auth = async function heard(...args) {
  try {
    return await auth.apply(this, args)
  } catch (error) {
    const { message } = error as Error
    if (!/no password is set|without any password configured/.test(message)) throw error
    this.emit(NEEDLESS)
    return 'OK'
  }
}
