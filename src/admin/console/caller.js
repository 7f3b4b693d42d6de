import { ask, HttpError } from './api.js'
import { chart } from './chart.js'
import { hrefOf, stateOf, usage } from './callers.js'
import { byId, element, list, table, write } from './dom.js'
import { pluralize, formatWindow, kindOf, rateText, refusal, refusals, time, whole } from './format.js'
import { mayReset, maySet } from './rights.js'
import { confirmed, dismiss, overridesTable, reasonOf, setLimits } from './overrides.js'
import { tiles } from './tiles.js'

/** @typedef {import('./api.js').Overview} Overview */
/** @typedef {import('../requests/operator-api.ts').CallerReport} CallerReport */
/** @typedef {CallerReport['limits'][number]} Counted */

const EVERY_MS = 2000
const HOUR_MS = 3_600_000
/** Pause after a read, as a multiple of its duration: a read may scan all of Redis. */
const PAUSE_FACTOR = 20

/** @param {readonly number[]} counts */
const total = (counts) => counts.reduce((sum, count) => sum + count, 0)

/**
 * Shows the outcome of a read or a reset. The next read replaces the message of a read.
 * @param {string} text
 * @param {'reading' | 'unread' | 'reset' | 'failed'} kind
 */
function showMessage(text, kind) {
  const node = byId('caller-message')
  node.dataset['kind'] = kind
  write(node, text, { reading: 'muted', reset: 'good', unread: 'refused', failed: 'refused' }[kind])
}

/** Clears the message if it is about a read. */
function clearReadMessage() {
  const { kind = '' } = byId('caller-message').dataset
  if (kind === 'reading' || kind === 'unread') showMessage('', 'reading')
}

/** Creates the page of one caller, which reads the limits while it is open. */
export function callerPage() {
  const showCalls = chart(byId('caller-calls'), 'Calls of this caller', 15)
  const showTiles = tiles(byId('caller-tiles'))
  const showLimits = table(byId('caller-limits'), 'Limits of this caller', ({ key }) => key, [
    { head: 'Limit', text: ({ name }) => name },
    {
      head: 'Counter',
      text: ({ key }) => key,
    },
    { head: 'Used', view: () => usage((/** @type {Counted} */ limit) => limit) },
    {
      head: 'Remaining',
      numeric: true,
      text: ({ remaining }) => whole(remaining),
    },
    {
      head: 'Window',
      text: (limit) => formatWindow(limit) + (limit.oldest ? `, the oldest since ${time(limit.oldest)}` : ''),
    },
    {
      head: 'Next call available',
      text: ({ limit, remaining, windowSeconds, reset }) =>
        windowSeconds && remaining < limit ? time(reset) : '–',
    },
    { head: 'Kind', text: kindOf },
  ])
  const showNames = list(
    byId('set-limit'),
    (/** @type {string} */ name) => name,
    (name) => ({ node: element('option', { value: name }, name), update() {} }),
  )
  /** @type {AbortController | undefined} */
  let opened
  let caller = ''
  /** The caller as the gateway shows it, once it has been read. */
  let shownAs = ''
  /** False if no limit counts the caller. */
  let isCounted = true
  /** @type {readonly string[]} */
  let settable = []
  /** @type {CallerReport['overrides']} */
  let overrides = []

  /** Shows the overrides of a caller that is counted, and the changes that the operator may make. */
  function showChanges() {
    const names = settable.filter(maySet)
    byId('reset').hidden = !isCounted || !mayReset()
    byId('set-card').hidden = !isCounted
    byId('set').hidden = names.length === 0
    write(byId('set-title'), names.length === 0 ? 'Overrides' : 'Set a limit')
    showNames(names)
    showOverrides(overrides)
  }

  async function read(/** @type {AbortSignal} */ signal) {
    const startedAt = performance.now()
    try {
      const response = await ask(`/limits/${encodeURIComponent(caller)}`, { signal })
      /** @type {CallerReport} */
      const used = await response.json()
      if (signal.aborted) return
      shownAs = used.caller
      // A secret value does not stay on the page, nor in its address.
      if (shownAs !== caller && shownAs.includes('…')) {
        write(byId('caller-name'), shownAs)
        document.title = `${shownAs} – Sluice`
        history.replaceState(null, '', hrefOf(shownAs))
      }
      showLimits(used.limits)
      settable = used.settable
      overrides = used.overrides
      byId('caller-notes').replaceChildren(...used.notes.map((note) => element('li', {}, note)))
      isCounted = true
      showChanges()
      clearReadMessage()
    } catch (error) {
      if (signal.aborted) return
      // No limit counts this caller.
      if (error instanceof HttpError && error.status === 404) isCounted = false
      showChanges()
      showMessage(`The limits cannot be read: ${reasonOf(error)}`, 'unread')
    }
    const pauseMs = Math.max(EVERY_MS, PAUSE_FACTOR * (performance.now() - startedAt))
    setTimeout(() => {
      if (!signal.aborted) void read(signal)
    }, pauseMs)
  }

  /** Reads now, and repeatedly until the page is closed. */
  function start() {
    opened?.abort()
    opened = new AbortController()
    void read(opened.signal)
  }

  byId('reset').addEventListener('click', () => void reset(caller))

  /** Reports a change of a caller's limits, and reads them again, unless another caller is open by now. */
  function report(
    /** @type {import('./overrides.js').Message} */ [text, className],
    /** @type {string} */ name,
  ) {
    if (caller !== name || opened?.signal.aborted) return
    write(byId('set-message'), text, className)
    start()
  }
  const showOverrides = overridesTable(byId('caller-overrides'), 'Overrides of this caller', report)
  byId('set').addEventListener('submit', (event) => {
    event.preventDefault()
    void set(caller)
  })
  async function set(/** @type {string} */ name) {
    const [limit = '', calls = '', hours = '', note = ''] = ['limit', 'calls', 'hours', 'note'].map((field) =>
      /** @type {HTMLInputElement} */ (byId(`set-${field}`)).value.trim(),
    )
    const until = hours === '' ? null : new Date(Date.now() + Number(hours) * HOUR_MS).toISOString()
    const more = { until, ...(note !== '' && { note }) }
    report(await setLimits(name, { [limit]: Number(calls) }, more), name)
  }

  async function reset(/** @type {string} */ name) {
    const text = `Deletes all counted calls of “${shownAs}”, at every gateway. The caller starts with full limits again.`
    if (!(await confirmed('Reset this caller?', text, 'Reset'))) return
    /** @type {Parameters<typeof showMessage>} */
    let end
    try {
      const response = await ask(`/limits/${encodeURIComponent(name)}`, { method: 'DELETE' })
      const { freed, keepsPlaces } = await response.json()
      const note = keepsPlaces ? ' Calls in progress keep their places.' : ''
      end = [`Reset: ${pluralize(freed, 'counter')} freed at ${time(Date.now())}.${note}`, 'reset']
    } catch (error) {
      end = [`The reset failed: ${reasonOf(error)}`, 'failed']
    }
    // Another page may be open by now.
    if (caller !== name || opened?.signal.aborted) return
    showMessage(...end)
    start()
  }

  function close() {
    opened?.abort()
    dismiss()
  }

  return {
    open(/** @type {string} */ name) {
      close()
      caller = name
      shownAs = name
      write(byId('caller-name'), name)
      showMessage('Reading the counters…', 'reading')
      isCounted = true
      settable = []
      overrides = []
      showChanges()
      showLimits([])
      write(byId('set-message'), '')
      byId('caller-notes').replaceChildren()
      start()
    },
    close,
    resume: start,
    show(/** @type {Overview} */ { activity }) {
      showChanges()
      const found = activity.callers.find((other) => other.caller === shownAs)
      const idle = Array(60).fill(0)
      const { calls, refused } = found ?? { calls: idle, refused: idle }
      const rates = { calls: found?.callsPerSecond ?? 0, refused: found?.refusedPerSecond ?? 0 }
      showCalls({ calls, refused }, rates, activity.until)
      showTiles([
        {
          name: 'Calls',
          text: `${rateText(rates.calls)}/s`,
          note: `${whole(total(calls))} in the last minute`,
        },
        {
          name: 'Refused',
          text: `${rateText(rates.refused)}/s`,
          note: refusals(total(refused), found?.limits ?? []),
        },
        {
          name: 'Refused now',
          ...refusal(found?.refusedNow),
        },
      ])
      if (found === undefined) {
        const text = 'No call in the last minute, or not among the busiest callers.'
        write(byId('caller-state'), text, 'state muted')
      } else {
        const { text, className } = stateOf(found)
        write(byId('caller-state'), text, className)
      }
    },
  }
}
