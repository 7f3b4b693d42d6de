import { byId, element, table, words, write } from './dom.js'
import { duration, pluralize, rateText, time } from './format.js'

/** @typedef {import('./api.js').Overview} Overview */
/** @typedef {Overview['gateways'][number]} Gateway */

/** A gateway sends its summary each second. */
const OLD_MS = 4000

/**
 * Returns the origin of an address that a browser can open from another machine. The text comes from Redis, to which others may write.
 * @param {string} address
 */
function openable(address) {
  if (!URL.canParse(address)) return undefined
  const { protocol, hostname, origin } = new URL(address)
  const isHere = /^(localhost|127\..*|\[::1\])$/.test(hostname)
  return /^https?:$/.test(protocol) && !isHere ? origin : undefined
}

/** @returns {import('./dom.js').View<Gateway>} */
function link() {
  const text = element('span')
  const anchor = element('a', { rel: 'noopener noreferrer' })
  return {
    node: element('span', {}, anchor, text),
    update({ self, admin }) {
      const origin = self || admin === null ? undefined : openable(admin)
      anchor.toggleAttribute('hidden', origin === undefined)
      if (origin !== undefined) anchor.setAttribute('href', `${origin}/`)
      write(anchor, origin ?? '')
      write(text, self ? 'this one' : origin === undefined ? (admin ?? 'on its machine') : '', 'muted')
    },
  }
}

/** @param {Gateway} gateway @returns {readonly [text: string, className: string]} */
function stateOf({ ageMs, outage, withoutRedis }) {
  const decided = withoutRedis === 0 ? '' : `; ${pluralize(withoutRedis, 'decision')} without Redis`
  const state = outage === null ? 'up' : `without Redis: ${outage}`
  if (ageMs > OLD_MS) return [`${duration(ageMs / 1000)} ago: ${state}${decided}`, 'near']
  return [state + decided, outage === null ? 'good' : 'refused']
}

/** Creates the table of the gateways that count together. */
export function gatewaysTable() {
  /** The configuration of this gateway. @type {string | null} */
  let here = null
  const show = table(
    byId('gateways'),
    'The gateways that count together',
    ({ host, pid, startedAt }) => `${host} ${pid} ${startedAt}`,
    [
      { head: 'Gateway', text: ({ host, pid }) => `${host}, process ${pid}` },
      { head: 'Calls/s', numeric: true, text: ({ calls }) => rateText(calls) },
      { head: 'Refused/s', numeric: true, text: ({ refused }) => rateText(refused) },
      {
        head: 'Failed/s',
        numeric: true,
        view: () => words(({ failed }) => [rateText(failed), failed === 0 ? '' : 'refused']),
      },
      { head: 'State', view: () => words(stateOf) },
      {
        head: 'Configuration',
        view: () =>
          words(({ configuration }) => {
            const hash = configuration?.slice(0, 12) ?? 'no file'
            return configuration === here ? [hash, 'one-line'] : [`${hash}, differs from here`, 'near']
          }),
      },
      { head: 'Version', text: ({ version }) => version },
      { head: 'Started', view: () => words(({ startedAt }) => [time(startedAt), 'one-line']) },
      { head: 'Console', view: link },
    ],
  )
  return (/** @type {Overview} */ overview) => {
    const { gateways } = overview
    here = gateways.find(({ self }) => self)?.configuration ?? null
    show(gateways)
    const note = noteOf(overview)
    byId('gateways-note').hidden = note === ''
    write(byId('gateways-note'), note, overview.counts === 'memory' ? 'muted' : 'near')
  }
}

/** @param {Overview} overview */
function noteOf({ at, counts, gatewaysReadAt: readAt }) {
  if (counts === 'memory') return 'This gateway counts in memory: other gateways are not shown.'
  if (readAt === null) return 'Redis has not responded yet: other gateways are unknown.'
  if (Date.parse(at) - Date.parse(readAt) <= OLD_MS) return ''
  return `Redis is unavailable: the other gateways are shown as they were at ${time(readAt)}.`
}
