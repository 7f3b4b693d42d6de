import perfHooks from 'node:perf_hooks'

/**
 * Gives all gateways of this process one monitor of the event loop. prom-client starts one for each, which nothing ends: it keeps
 * 0.4 MB, and wakes the process a hundred times a second.
 */
const { monitorEventLoopDelay } = perfHooks
let monitor: ReturnType<typeof monitorEventLoopDelay> | undefined
perfHooks.monitorEventLoopDelay = (options) => (monitor ??= monitorEventLoopDelay(options))
