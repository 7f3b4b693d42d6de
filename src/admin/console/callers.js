import { bar, sparkline } from './chart.js'
import { byId, element, firstRows, table, write } from './dom.js'
import { duration, rateText, time, whole } from './format.js'

/** @typedef {import('./api.js').Overview} Overview */
/** @typedef {Overview['activity']['callers'][number]} Caller */
/** @typedef {Pick<Caller['limits'][number], 'limit' | 'used' | 'remaining' | 'part'>} Used */

/** Refused callers that are shown before all are asked for. */
const FIRST_REFUSED = 10

/** @param {Used} limit */
function partUsed({ limit, remaining, part }) {
  const most = part ?? limit
  return most === 0 ? 1 : (most - remaining) / most
}

/** @param {string} caller */
export const hrefOf = (caller) => `#caller/${encodeURIComponent(caller.toWellFormed())}`

/** @param {Caller} caller */
const keyOf = ({ caller }) => caller
/** @param {Caller} caller */
const nameOf = ({ name, caller }) => (name === null ? caller : `${name} (${caller})`)

/** @returns {import('./dom.js').View<Caller>} */
function link() {
  const node = element('a', { class: 'caller' })
  return {
    node,
    update(caller) {
      write(node, nameOf(caller))
      node.setAttribute('href', hrefOf(caller.caller))
    },
  }
}

/**
 * Creates a bar with the numbers of a limit.
 * @template T
 * @param {(item: T) => Used | undefined} limitOf
 * @returns {import('./dom.js').View<T>}
 */
export function usage(limitOf) {
  const part = bar()
  const text = element('span')
  const node = element('span', { class: 'usage' }, part.node, text)
  return {
    node,
    update(item) {
      const limit = limitOf(item)
      node.toggleAttribute('hidden', limit === undefined)
      if (limit === undefined) return
      part.update(partUsed(limit))
      write(text, `${whole(limit.used)} of ${whole(limit.limit)}`)
    },
  }
}

/** @param {Caller['refusedNow']} refusedNow */
const endOf = (refusedNow) =>
  refusedNow === null ? '' : refusedNow.until === null ? 'no calls allowed' : time(refusedNow.until)

/** @param {Caller} caller */
export function stateOf({ refusedNow, limits, part }) {
  if (refusedNow !== null) return { text: `Refused by ${refusedNow.limit}`, className: 'state refused' }
  if (part >= 0.8) return { text: 'Near its limit', className: 'state near' }
  const trial = limits.find(({ wouldRefuse }) => wouldRefuse > 0)
  if (trial !== undefined) return { text: `Would be refused by ${trial.name}`, className: 'state near' }
  const over = limits.find(({ refused }) => refused > 0)
  if (over !== undefined) return { text: `Refused before by ${over.name}`, className: 'state near' }
  return { text: 'Within', className: 'state' }
}

/** @returns {import('./dom.js').View<Caller>} */
function state() {
  const node = element('span')
  return {
    node,
    update(caller) {
      const { text, className } = stateOf(caller)
      write(node, text, className)
    },
  }
}

/** @returns {import('./dom.js').View<Caller>} */
function calls() {
  const spark = sparkline({ calls: [], refused: [] })
  const text = element('span')
  return {
    node: element('span', { class: 'calls' }, spark.node, text),
    update(caller) {
      spark.update(caller)
      write(text, rateText(caller.callsPerSecond))
    },
  }
}

/** Creates the tables of callers, those with the most refusals first, and of callers that are refused now. */
export function callerTables() {
  const showCallers = table(
    byId('callers'),
    'Callers of the last minute, by refusals and by the used part of their limits',
    keyOf,
    [
      { head: 'Caller', view: link },
      { head: 'Calls/s', numeric: true, view: calls },
      {
        head: 'Refused in 1 min',
        numeric: true,
        text: ({ refusals }) => whole(refusals),
      },
      {
        head: 'Limit',
        text: ({ most }) => most?.name ?? '–',
      },
      { head: 'Used', view: () => usage(({ most }) => most ?? undefined) },
      { head: 'State', view: state },
      { head: 'Plan', text: ({ plan }) => plan ?? '–' },
      { head: 'Most calls to', text: ({ route }) => route },
    ],
  )
  const showRefused = table(byId('refused'), 'Callers that are refused now', keyOf, [
    { head: 'Caller', view: link },
    {
      head: 'By the limit',
      text: ({ refusedNow }) => refusedNow?.limit ?? '',
    },
    {
      head: 'Until',
      text: ({ refusedNow }) => endOf(refusedNow),
    },
    {
      head: 'For',
      numeric: true,
      text: ({ refusedNow }) => (refusedNow?.until ? duration(refusedNow.forMs / 1000) : '–'),
    },
    {
      head: 'Refused/s',
      numeric: true,
      text: ({ refusedPerSecond }) => rateText(refusedPerSecond),
    },
  ])
  const showFirstRefused = firstRows('refused', FIRST_REFUSED, showRefused)
  const filter = /** @type {HTMLInputElement} */ (byId('filter'))
  const matches = (/** @type {Caller} */ caller) =>
    nameOf(caller).toLowerCase().includes(filter.value.trim().toLowerCase())
  /** @type {Overview | undefined} */
  let latest
  filter.addEventListener('input', () => {
    if (latest !== undefined) show(latest)
  })
  return show

  function show(/** @type {Overview} */ overview) {
    latest = overview
    const { callers, known, mostKnown } = overview.activity
    const shown = callers.filter(matches)
    showCallers(shown)
    const all = known < mostKnown ? whole(known) : `${whole(known)} or more`
    write(byId('some-callers'), `${whole(shown.length)} of ${all}`)
    byId('some-callers').hidden = shown.length === known
    const refused = callers.filter(({ refusedNow }) => refusedNow !== null)
    showFirstRefused(refused.toSorted((a, b) => (b.refusedNow?.forMs ?? 0) - (a.refusedNow?.forMs ?? 0)))
    // Callers that the filter hides have made calls.
    byId('idle').hidden = callers.length > 0
  }
}
