import { ask, HttpError } from './api.js'
import { callerActivity } from './caller-activity.js'
import { callerChanges } from './caller-changes.js'
import { clearReadMessage, showMessage } from './caller-message.js'
import { hrefOf, usage } from './callers.js'
import { byId, element, table, write } from './dom.js'
import { formatWindow, kindOf, time, whole } from './format.js'
import { dismiss, reasonOf } from './overrides.js'

/** @typedef {import('./api.js').Overview} Overview */
/** @typedef {import('./caller-changes.js').Changeable} Changeable */
/** @typedef {import('../requests/operator-api.ts').CallerReport} CallerReport */
/** @typedef {CallerReport['limits'][number]} Counted */

const EVERY_MS = 2000
/** Pause after a read, as a multiple of its duration: a read may scan all of Redis. */
const PAUSE_FACTOR = 20

/** Creates the page of one caller, which reads the limits while it is open. */
export function callerPage() {
  const showActivity = callerActivity()
  const showLimits = limitsTable()
  const showChanges = callerChanges(onChanged)
  /** The caller as it was last read. */
  let caller = unread('')
  /** Ends the reads when the page is closed. @type {AbortController | undefined} */
  let reading

  async function read(/** @type {AbortSignal} */ signal) {
    const startedAt = performance.now()
    try {
      const response = await ask(`/limits/${encodeURIComponent(caller.name)}`, { signal })
      /** @type {CallerReport} */
      const report = await response.json()
      if (signal.aborted) return
      showReport(report)
      clearReadMessage()
    } catch (error) {
      if (signal.aborted) return
      const isUncounted = error instanceof HttpError && error.status === 404
      if (isUncounted) caller = { ...caller, isCounted: false }
      showChanges(caller)
      showMessage(`The limits cannot be read: ${reasonOf(error)}`, 'unread')
    }
    const pauseMs = Math.max(EVERY_MS, PAUSE_FACTOR * (performance.now() - startedAt))
    setTimeout(() => {
      if (!signal.aborted) void read(signal)
    }, pauseMs)
  }

  function showReport(/** @type {CallerReport} */ { caller: shownAs, limits, notes, settable, overrides }) {
    // A secret value does not stay on the page, nor in its address.
    if (shownAs !== caller.name && shownAs.includes('…')) {
      write(byId('caller-name'), shownAs)
      document.title = `${shownAs} – Sluice`
      history.replaceState(null, '', hrefOf(shownAs))
    }
    caller = { name: caller.name, shownAs, isCounted: true, settable, overrides }
    showLimits(limits)
    byId('caller-notes').replaceChildren(...notes.map((note) => element('li', {}, note)))
    showChanges(caller)
  }

  /** Reads now, and repeatedly until the page is closed. */
  function start() {
    reading?.abort()
    reading = new AbortController()
    void read(reading.signal)
  }

  /** Shows the outcome of a change, and reads the limits again, unless another page is open by now. */
  function onChanged(/** @type {string} */ name, /** @type {() => void} */ showOutcome) {
    if (caller.name !== name || reading?.signal.aborted) return
    showOutcome()
    start()
  }

  function close() {
    reading?.abort()
    dismiss()
  }

  return {
    open(/** @type {string} */ name) {
      close()
      caller = unread(name)
      write(byId('caller-name'), name)
      showMessage('Reading the counters…', 'reading')
      showChanges(caller)
      showLimits([])
      write(byId('set-message'), '')
      byId('caller-notes').replaceChildren()
      start()
    },
    close,
    resume: start,
    show(/** @type {Overview} */ { activity }) {
      // The overview names the operator, whose rights may have changed.
      showChanges(caller)
      showActivity(activity, caller.shownAs)
    },
  }
}

/**
 * Returns a caller of whom only the name is known.
 * @param {string} name
 * @returns {Changeable}
 */
const unread = (name) => ({ name, shownAs: name, isCounted: true, settable: [], overrides: [] })

/** Creates the table of the limits that count a caller. */
function limitsTable() {
  return table(byId('caller-limits'), 'Limits of this caller', ({ key }) => key, [
    { head: 'Limit', text: ({ name }) => name },
    { head: 'Counter', text: ({ key }) => key },
    { head: 'Used', view: () => usage((/** @type {Counted} */ limit) => limit) },
    { head: 'Remaining', numeric: true, text: ({ remaining }) => whole(remaining) },
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
}
