// Preloaded by bench/slowest.ts: writes at the exit when this process collected garbage, ran timers, and
// waited for Redis, to the file MARKS: lists of [from, to] in milliseconds of the system's monotonic clock.
import { subscribe } from 'node:diagnostics_channel'
import { writeFileSync } from 'node:fs'
import { constants, PerformanceObserver } from 'node:perf_hooks'
import { isMainThread } from 'node:worker_threads'

/** Shorter callbacks of timers are not recorded. */
const MIN_TIMER_MS = 0.05

const now = () => Number(process.hrtime.bigint()) / 1e6
const marks = { scavenges: [], otherCollections: [], timers: [], redis: [] }

function recordCollections() {
  const offset = now() - performance.now()
  new PerformanceObserver((list) => {
    for (const { startTime, duration, detail } of list.getEntries()) {
      const kind = detail.kind === constants.NODE_PERFORMANCE_GC_MINOR ? 'scavenges' : 'otherCollections'
      marks[kind].push([startTime + offset, startTime + offset + duration])
    }
  }).observe({ entryTypes: ['gc'] })
}

function recordTimers() {
  for (const name of ['setTimeout', 'setInterval']) {
    const original = globalThis[name]
    const recording = (callback, ...rest) =>
      original(
        (...args) => {
          const from = now()
          callback(...args)
          const to = now()
          if (to - from > MIN_TIMER_MS) marks.timers.push([from, to])
        },
        ...rest,
      )
    globalThis[name] = Object.assign(recording, original)
  }
}

/** Records the time from the first write to the next answer of each connection to Redis. */
function recordRedis() {
  subscribe('net.client.socket', ({ socket }) => {
    let askedAt
    const write = socket.write
    socket.once('connect', () => {
      if (String(socket.remotePort) !== process.env.REDIS) return
      socket.write = (...args) => {
        askedAt ??= now()
        return write.apply(socket, args)
      }
      socket.prependListener('data', () => {
        if (askedAt !== undefined) marks.redis.push([askedAt, now()])
        askedAt = undefined
      })
    })
  })
}

if (isMainThread) {
  recordCollections()
  recordTimers()
  recordRedis()
  process.once('exit', () => writeFileSync(process.env.MARKS, JSON.stringify(marks)))
}
