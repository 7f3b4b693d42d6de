import { element, list, write } from './dom.js'
import { milliseconds, pluralize, rate, time, whole } from './format.js'

/** @typedef {import('./api.js').Overview} Overview */

/** @type {Readonly<Record<string, string>>} */
const FALLBACKS = {
  local: 'Redis unavailable; counting in each process',
  allow: 'Redis unavailable; admitting every call',
  deny: 'Redis unavailable; refusing limited calls with 503',
}

/**
 * Returns a function that shows a list of names and values.
 * @param {Element} parent
 * @returns {(tiles: readonly { readonly name: string, readonly text: string, readonly note?: string, readonly className?: string }[]) => void}
 */
export function tiles(parent) {
  return list(
    parent,
    ({ name }) => name,
    ({ name }) => {
      const value = element('dd')
      const note = element('dd', { class: 'muted' })
      return {
        node: element('div', {}, element('dt', {}, name), value, note),
        update({ text, note: more = '', className = '' }) {
          write(value, text, className)
          write(note, more)
        },
      }
    },
  )
}

/** @type {Readonly<Record<string, string>>} */
const OUTAGES = {
  local: 'each gateway admits its part of the limits',
  allow: 'every call is admitted',
  deny: 'limited calls get 503',
}

/**
 * Returns whether the gateway is ready, with what is wrong all the same.
 * @param {Overview} overview
 * @returns {[text: string, className: string]}
 */
export function readiness({ notReady, reloads, status: { store }, events }) {
  const troubles = []
  if (!store.up) {
    // The log says when an outage begins, unless `log.level` omits it or Redis contradicts the configuration.
    const change = events.find(({ text }) => /^Redis (?:un)?available/.test(text))
    const since = change?.text.startsWith('Redis un') ? ` since ${time(change.at)}` : ''
    const outages = store.modes.flatMap((mode) => OUTAGES[mode] ?? [])
    troubles.push(`Redis is unavailable${since}: ${outages.join(', ')}`)
  }
  const [reload] = reloads
  if (reload?.problems[0] !== undefined)
    troubles.push(`the file was rejected at ${time(reload.at)}: ${reload.problems[0]}`)
  const state = notReady === null ? 'Ready' : `Not ready: ${notReady}`
  if (troubles.length === 0) return [state, notReady === null ? 'good' : 'refused']
  return notReady === null
    ? [`Ready, but ${troubles.join('; ')}`, 'near']
    : [`${state}; ${troubles.join('; ')}`, 'refused']
}

/** @param {Overview} overview */
export function tilesOf({ at, gateway, activity, counts, lastMinute, status: { store, workers, sockets } }) {
  // A rate over the seconds before the start would be too low.
  const aliveSeconds = Math.max(1, Math.floor((Date.parse(at) - Date.parse(gateway.startedAt)) / 1000))
  const perSecond = (/** @type {readonly number[]} */ series) => rate(series.slice(-aliveSeconds))
  const requests = lastMinute.durations.find(({ kind }) => kind === 'requests')
  const refusedByRules = lastMinute.errors.reduce(
    (sum, { code, calls }) => (code < '500' && code !== '429' ? sum + calls : sum),
    0,
  )
  const refused = activity.callers.filter(({ refusedNow }) => refusedNow !== null).length
  const fallbacks = store.up ? [] : store.modes.flatMap((mode) => FALLBACKS[mode] ?? [])
  const missed =
    store.withoutRedis === 0
      ? []
      : [
          `${pluralize(store.withoutRedis, 'decision')} without Redis, the last at ${time(store.lastWithoutRedis ?? at)}`,
        ]
  return [
    { name: 'Calls', text: `${perSecond(activity.requests)}/s`, note: 'all requests to this gateway' },
    {
      name: 'Refused by limits',
      text: `${perSecond(activity.refused)}/s`,
      note: `${pluralize(refused, 'caller')} now`,
    },
    {
      name: 'Failed',
      text: `${perSecond(activity.failed)}/s`,
      note: `status 500 and above; ${pluralize(refusedByRules, 'other error')} in the last minute`,
      className: perSecond(activity.failed) === '0' ? '' : 'refused',
    },
    {
      name: 'Duration',
      text: requests === undefined ? '–' : milliseconds(requests.p99Ms),
      note:
        requests === undefined
          ? 'no request in the last minute'
          : `99 % within; median ${milliseconds(requests.p50Ms)}`,
    },
    {
      name: 'Store',
      text: store.up ? 'Up' : 'Down',
      note: [...fallbacks, ...missed].join('; ') || `${counts} counts`,
      className: store.up ? 'good' : 'refused',
    },
    {
      name: 'Processes',
      text: whole(workers ?? 0),
      note: sockets === null ? 'that serve callers' : pluralize(sockets, 'open socket'),
    },
  ]
}
