import { element, list, write } from './dom.js'
import { milliseconds, pluralize, rateText, time, whole } from './format.js'

/** @typedef {import('./api.js').Overview} Overview */

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

/** Maximum length of a mistake next to the readiness, in characters; the list of reloads has the whole text. */
const MAX_MISTAKE = 150

/** @param {string} mistake */
const shortened = (mistake) => (mistake.length > MAX_MISTAKE ? `${mistake.slice(0, MAX_MISTAKE)}…` : mistake)

/**
 * Returns whether the gateway is ready, with what is wrong all the same.
 * @param {Overview} overview
 * @returns {[text: string, className: string]}
 */
export function readiness({ notReady, reloads, leftOut, keptAt, status: { store, overridesKnown } }) {
  const troubles = []
  const { outage } = store
  if (outage !== null) troubles.push(`Redis is unavailable since ${time(outage.since)}: ${outage.text}`)
  if (!overridesKnown) troubles.push('limits set by operators are unknown until Redis answers')
  const [reload] = reloads
  if (reload?.problems[0] !== undefined)
    troubles.push(`the file was rejected at ${time(reload.at)}: ${shortened(reload.problems[0])}`)
  if (keptAt !== null) troubles.push(`the configuration kept at ${time(keptAt)} is in force`)
  if (leftOut[0] !== undefined) troubles.push(`files of teams are left out: ${shortened(leftOut[0])}`)
  const state = notReady === null ? 'Ready' : `Not ready: ${notReady}`
  if (troubles.length === 0) return [state, notReady === null ? 'good' : 'refused']
  return notReady === null
    ? [`Ready, but ${troubles.join('; ')}`, 'near']
    : [`${state}; ${troubles.join('; ')}`, 'refused']
}

/** @param {Overview} overview */
export function tilesOf({ at, gateways, activity, counts, lastMinute, status: { store, workers, sockets } }) {
  const self = gateways.find((gateway) => gateway.self)
  const failed = self?.failed ?? 0
  const requests = lastMinute.durations.find(({ kind }) => kind === 'requests')
  const refusedByRules = lastMinute.errors.reduce(
    (sum, { code, calls }) => (code < '500' && code !== '429' ? sum + calls : sum),
    0,
  )
  const refused = activity.callers.filter(({ refusedNow }) => refusedNow !== null).length
  const fallbacks = store.outage === null ? [] : [`Redis unavailable; ${store.outage.text}`]
  const missed =
    store.withoutRedis === 0
      ? []
      : [
          `${pluralize(store.withoutRedis, 'decision')} without Redis, the last at ${time(store.lastWithoutRedis ?? at)}`,
        ]
  return [
    { name: 'Calls', text: `${rateText(self?.calls ?? 0)}/s`, note: 'all requests to this gateway' },
    {
      name: 'Refused by limits',
      text: `${rateText(self?.refused ?? 0)}/s`,
      note: `${pluralize(refused, 'caller')} now`,
    },
    {
      name: 'Failed',
      text: `${rateText(failed)}/s`,
      note: `status 500 and above; ${pluralize(refusedByRules, 'other error')} in the last minute`,
      className: failed === 0 ? '' : 'refused',
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
      text: store.outage === null ? 'Up' : 'Down',
      note: [...fallbacks, ...missed].join('; ') || `${counts} counts`,
      className: store.outage === null ? 'good' : 'refused',
    },
    {
      name: 'Processes',
      text: whole(workers),
      note: pluralize(sockets, 'open socket'),
    },
  ]
}
