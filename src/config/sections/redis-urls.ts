import { z } from 'zod'
import { mustSecretly } from '../yaml/wording.ts'

/** Where Redis listens: `redis://`, `rediss://` or a socket file. */
export function redisUrl() {
  const wording = mustSecretly(
    'redis://host:6379, rediss://host:6379 or unix:///path/to/redis.sock',
    (input) => (typeof input === 'string' ? redisProblem(input) : undefined),
  )
  return z.string(wording).refine((text) => redisProblem(text) === undefined, wording)
}

/** A node of a Redis Cluster, which has database 0 alone. */
export function clusterUrl() {
  const what = 'redis://host:6379 or rediss://host:6379'
  const wording = mustSecretly(what, (input) =>
    typeof input === 'string' ? nodeProblem(input, what) : undefined,
  )
  return z.string(wording).refine((text) => nodeProblem(text, what) === undefined, wording)
}

/** A sentinel, without credentials: its own are another setting, and so are those of the master. */
export function sentinelUrl() {
  const what = 'redis://host:26379 or rediss://host:26379'
  const problem = (text: string) =>
    nodeProblem(text, what) ??
    (/@/.test(text)
      ? 'must hold no credentials; write them as username, password, sentinelUsername and sentinelPassword'
      : undefined)
  const wording = mustSecretly(what, (input) => (typeof input === 'string' ? problem(input) : undefined))
  return z.string(wording).refine((text) => problem(text) === undefined, wording)
}

function nodeProblem(text: string, what: string): string | undefined {
  if (!/^rediss?:\/\//.test(text)) return `must be ${what}`
  const isLonger = URL.canParse(text) && new URL(text).pathname.length > 1
  return isLonger ? `must end after the port; write ${what}` : redisProblem(text)
}

function redisProblem(text: string): string | undefined {
  if (/^(?:unix:\/\/)?\/[^\s?#]+$/.test(text)) return undefined
  if (!/^rediss?:\/\//.test(text) || !URL.canParse(text)) {
    return 'must be redis://host:6379, rediss://host:6379 or unix:///path/to/redis.sock'
  }
  const url = new URL(text)
  if (url.hostname === '') return 'names no host; write redis://host:6379'
  if (url.search !== '' || url.hash !== '') return 'must have nothing after the database number'
  if (!/^(?:\/\d{0,4})?$/.test(url.pathname))
    return 'must end with the number of a database, such as /0, or without'
  return undefined
}
