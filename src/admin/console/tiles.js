import { element, list, write } from './dom.js'
import { pluralize, rate, whole } from './format.js'

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

/** @param {Overview} overview */
export function tilesOf({ activity, counts, status: { store, workers, sockets } }) {
  const refused = activity.clients.filter(({ refusedNow }) => refusedNow !== null).length
  const fallbacks = store.up ? [] : store.modes.flatMap((mode) => FALLBACKS[mode] ?? [])
  const missed =
    store.withoutRedis === 0
      ? []
      : [`${pluralize(store.withoutRedis, 'decision')} without Redis, the last at ${store.lastWithoutRedis}`]
  return [
    { name: 'Calls', text: `${rate(activity.requests)}/s`, note: 'all requests' },
    {
      name: 'Refused by limits',
      text: `${rate(activity.refused)}/s`,
      note: `${pluralize(refused, 'client')} now`,
    },
    {
      name: 'Failed',
      text: `${rate(activity.failed)}/s`,
      note: 'status 500 and above',
      className: rate(activity.failed) === '0' ? '' : 'refused',
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
