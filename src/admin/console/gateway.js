import { byId, firstRows, lines, table, words, write } from './dom.js'
import { pluralize, duration, formatWindow, milliseconds, time, whole } from './format.js'
import { overridesTable } from './overrides.js'

/** @typedef {import('./api.js').Overview} Overview */

/** Events that are shown before all are asked for. */
const FIRST_EVENTS = 5
const DAY_MS = 86_400_000
const INSTANTS = /\d{4}-\d\d-\d\dT[\d:.]+Z/g
/** @type {Readonly<Record<string, string>>} */
const LEVELS = { warn: 'near', error: 'refused', fatal: 'refused' }
/** @type {Readonly<Record<string, string>>} */
const MEASURED = { requests: 'Requests, from head to end', store: 'Store decisions' }

/** Creates the tables of a gateway; returns the function that shows an overview in them. */
export function gatewayTables() {
  const tables = [
    durationsTable(),
    errorsTable(),
    eventsTable(),
    limitsTable(),
    allOverridesTable(),
    upstreamsTable(),
    trustTable(),
    reloadsTable(),
  ]
  return (/** @type {Overview} */ overview) => {
    for (const show of tables) show(overview)
  }
}

function durationsTable() {
  const show = table(
    byId('durations'),
    'Durations in the last minute',
    ({ kind, name }) => `${kind} ${name}`,
    [
      { head: 'Of', text: ({ kind, name }) => MEASURED[kind] ?? `Upstream ${name}, to the head` },
      { head: 'Count', numeric: true, text: ({ count }) => whole(count) },
      { head: 'Median', numeric: true, text: ({ p50Ms }) => milliseconds(p50Ms) },
      { head: '99 % within', numeric: true, text: ({ p99Ms }) => milliseconds(p99Ms) },
    ],
  )
  return (/** @type {Overview} */ { lastMinute }) => show(lastMinute.durations)
}

function errorsTable() {
  const show = table(
    byId('errors'),
    'Responses with a status of 400 or above in the last minute',
    ({ route, code, source }) => `${code} ${source} ${route}`,
    [
      { head: 'Status', view: () => words(({ code }) => [code, code >= '500' ? 'refused' : 'near']) },
      { head: 'Route', text: ({ route }) => route },
      {
        head: 'Response from',
        text: ({ source, code }) => (code === '499' ? 'none: the caller left' : `the ${source}`),
      },
      { head: 'Responses', numeric: true, text: ({ calls }) => whole(calls) },
    ],
  )
  return (/** @type {Overview} */ { lastMinute }) => show(lastMinute.errors)
}

function eventsTable() {
  const showAll = table(byId('events'), 'The latest events', ({ at, text }) => `${at} ${text}`, [
    { head: 'Time', text: ({ at }) => time(at) },
    { head: 'Level', view: () => words(({ level }) => [level, LEVELS[level] ?? '']) },
    { head: 'Event', text: ({ text }) => text.replaceAll(INSTANTS, time) },
  ])
  const showFirst = firstRows('events', FIRST_EVENTS, showAll)
  return (/** @type {Overview} */ { events }) => showFirst(events)
}

/** Creates the table of the configured limits, with the calls that a shadow limit would have refused. */
function limitsTable() {
  const show = table(byId('limits'), 'Limits of the configuration', ({ name }) => name, [
    { head: 'Limit', text: ({ name }) => name },
    { head: 'Counted per', text: ({ per }) => per.join(', ') || 'all callers together' },
    {
      head: 'Allows',
      text: (limit) => {
        const kind = limit.calendar ? 'in a calendar ' : limit.windowSeconds ? 'in ' : ''
        return `${pluralize(limit.limit, 'call')} ${kind}${formatWindow(limit)}`
      },
    },
    {
      head: 'Kind',
      text: ({ shadow, over }) => (shadow ? `shadow: would have refused ${pluralize(over, 'call')}` : 'live'),
    },
    {
      head: 'Upcoming changes',
      text: ({ changes }) =>
        changes
          .map(
            (/** @type {{ from: string, limit: number }} */ { from, limit }) =>
              `${whole(limit)} from ${time(from)}`,
          )
          .join('; ') || '–',
    },
  ])
  return (/** @type {Overview} */ { status: { store, shadowOver }, limits }) => {
    byId('limits-note').hidden = store.outage === null || !store.modes.includes('local')
    const overOf = (/** @type {string} */ name) => shadowOver.find(({ limit }) => limit === name)?.calls ?? 0
    show(limits.map((limit) => ({ ...limit, over: overOf(limit.name) })))
  }
}

/** Creates the table of the overrides of all clients. An overview has only the first of them. */
function allOverridesTable() {
  const show = overridesTable(
    byId('overrides'),
    'Limits of clients that operators have set',
    ([text, className]) => write(byId('overrides-message'), text, className),
  )
  return (/** @type {Overview} */ { overrides: { first, total } }) => {
    show(first)
    byId('overrides-note').hidden = total > 0 && total === first.length
    write(
      byId('overrides-note'),
      total === 0 ? 'No client’s limit is overridden.' : `${first.length} of ${total}`,
    )
  }
}

function upstreamsTable() {
  const show = table(
    byId('upstreams'),
    'Addresses of the upstreams',
    ({ upstream, address }) => `${upstream} ${address}`,
    [
      { head: 'Upstream', text: ({ upstream }) => upstream },
      { head: 'Address', text: ({ address }) => address },
      { head: 'State', view: () => words(({ up }) => (up ? ['Up', 'good'] : ['Down', 'refused'])) },
      {
        head: 'Load',
        text: ({ sockets, queue, waiting, oldestWaitSeconds: oldest }) =>
          [
            pluralize(sockets, 'socket'),
            ...(queue > 0 ? [`${whole(queue)} in the queue`] : []),
            ...(waiting > 0
              ? [`${whole(waiting)} waiting for a response, the oldest for ${duration(oldest)}`]
              : []),
          ].join(', '),
      },
    ],
  )
  return (/** @type {Overview} */ { status }) => show(status.upstreams)
}

/** Creates the table of the keys of issuers, of introspection and of certificates. */
function trustTable() {
  const show = table(
    byId('trust'),
    'Keys of the issuers, introspection and certificates',
    ({ name }) => name,
    [
      { head: 'Of', text: ({ name }) => name },
      { head: 'State', view: () => words(({ text, className }) => [text, className]) },
    ],
  )
  return (/** @type {Overview} */ { status }) => show(trustOf(status))
}

/**
 * @param {Overview['status']} status
 * @returns {readonly { readonly name: string, readonly text: string, readonly className: string }[]}
 */
function trustOf({ issuers, certificates }) {
  return [
    ...issuers.map(({ issuer, ageSeconds, failures }) => ({
      name: `Keys of ${issuer}`,
      text: `read, or first tried, ${duration(Math.max(1, ageSeconds))} ago${failures ? `; ${pluralize(failures, 'failure')}` : ''}`,
      className: failures ? 'near' : '',
    })),
    ...issuers
      .filter(({ introspectionUp }) => introspectionUp !== null)
      .map(({ issuer, introspectionUp: up }) => ({
        name: `Introspection at ${issuer}`,
        text: up ? 'Up' : 'Down',
        className: up ? 'good' : 'refused',
      })),
    ...certificates.map(({ certificate, expiresAt, state, message }) => {
      const days = Math.floor((expiresAt - Date.now()) / DAY_MS)
      return {
        name: certificate,
        text: message.replaceAll(INSTANTS, time) + (days < 0 ? '' : `; ${pluralize(days, 'day')} left`),
        className: { ok: 'good', warning: 'near', failed: 'refused' }[state],
      }
    }),
  ]
}

function reloadsTable() {
  const show = table(byId('reloads'), 'The last reloads', ({ at }) => at, [
    { head: 'Time', text: ({ at }) => time(at) },
    {
      head: 'Result',
      view: () =>
        lines(({ problems, changes }) =>
          problems.length === 0
            ? [['Loaded', ...changes], 'good problems']
            : [['Rejected', ...problems], 'refused problems'],
        ),
    },
  ])
  return (/** @type {Overview} */ { reloads }) => show(reloads)
}
