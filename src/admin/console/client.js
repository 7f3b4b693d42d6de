import { ask } from './api.js'
import { chart } from './chart.js'
import { stateOf, usage } from './clients.js'
import { byId, element, list, table, write } from './dom.js'
import { pluralize, duration, kindOf, notesOf, rate, refusal, refusals, time, whole } from './format.js'
import { confirmed, dismiss, overridesTable, reasonOf, setLimits } from './overrides.js'
import { tiles } from './tiles.js'

/** @typedef {import('./api.js').Overview} Overview */
/** @typedef {import('../../gateway/usage.ts').ClientUsage} ClientUsage */
/** @typedef {ClientUsage['limits'][number]} Counted */

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
  const node = byId('client-message')
  node.dataset['kind'] = kind
  write(node, text, { reading: 'muted', reset: 'good', unread: 'refused', failed: 'refused' }[kind])
}

/** Clears the message if it is about a read. */
function clearReadMessage() {
  const { kind = '' } = byId('client-message').dataset
  if (kind === 'reading' || kind === 'unread') showMessage('', 'reading')
}

/** Creates the page of one client, which reads the limits while it is open. */
export function clientPage() {
  const showCalls = chart(byId('client-calls'), 'Calls of this client', 15)
  const showTiles = tiles(byId('client-tiles'))
  const showLimits = table(byId('client-limits'), 'Limits of this client', ({ key }) => key, [
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
      text: ({ windowSeconds, calendar }) =>
        calendar === undefined ? duration(windowSeconds) : `${calendar.unit} (${calendar.timezone})`,
    },
    {
      head: 'Next call freed',
      text: ({ limit, remaining, reset }) => (remaining < limit ? time(reset) : '–'),
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
  let client = ''

  async function read(/** @type {AbortSignal} */ signal) {
    const startedAt = performance.now()
    try {
      const response = await ask(`/limits/${encodeURIComponent(client)}`, { signal })
      /** @type {ClientUsage} */
      const used = await response.json()
      if (signal.aborted) return
      showLimits(used.limits)
      showOverrides(used.overrides)
      byId('client-notes').replaceChildren(...notesOf(used).map((note) => element('li', {}, note)))
      clearReadMessage()
    } catch (error) {
      if (signal.aborted) return
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

  byId('reset').addEventListener('click', () => void reset(client))

  /** Reports a change of a client's limits, and reads them again, unless another client is open by now. */
  function report(
    /** @type {import('./overrides.js').Message} */ [text, className],
    /** @type {string} */ name,
  ) {
    if (client !== name || opened?.signal.aborted) return
    write(byId('set-message'), text, className)
    start()
  }
  const showOverrides = overridesTable(byId('client-overrides'), 'Overrides of this client', report)
  byId('set').addEventListener('submit', (event) => {
    event.preventDefault()
    void set(client)
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
    const text = `Forgets all counted calls of “${name}”, at every gateway. The client starts with full limits again.`
    if (!(await confirmed('Reset this client?', text, 'Reset'))) return
    /** @type {Parameters<typeof showMessage>} */
    let end
    try {
      const response = await ask(`/limits/${encodeURIComponent(name)}`, { method: 'DELETE' })
      const { freed } = await response.json()
      end = [`Reset: ${pluralize(freed, 'counter')} freed at ${time(Date.now())}.`, 'reset']
    } catch (error) {
      end = [`The reset failed: ${reasonOf(error)}`, 'failed']
    }
    // Another page may be open by now.
    if (client !== name || opened?.signal.aborted) return
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
      client = name
      write(byId('client-name'), name)
      showMessage('Reading the counters…', 'reading')
      showLimits([])
      showOverrides([])
      write(byId('set-message'), '')
      byId('client-notes').replaceChildren()
      start()
    },
    close,
    resume: start,
    show(/** @type {Overview} */ { activity, limits }) {
      const names = limits.flatMap(({ name, per }) => (per[0] === 'client' ? [name] : []))
      showNames(names)
      const found = activity.clients.find((other) => other.client === client)
      const idle = Array(60).fill(0)
      const { calls, refused } = found ?? { calls: idle, refused: idle }
      showCalls({ calls, refused }, activity.until)
      showTiles([
        { name: 'Calls', text: `${rate(calls)}/s`, note: `${whole(total(calls))} in the last minute` },
        { name: 'Refused', text: `${rate(refused)}/s`, note: refusals(total(refused), found?.limits ?? []) },
        {
          name: 'Refused now',
          ...refusal(found?.refusedNow),
        },
      ])
      if (found === undefined) {
        const text = 'No call in the last minute, or not among the busiest clients.'
        write(byId('client-state'), text, 'state muted')
      } else {
        const { text, className } = stateOf(found)
        write(byId('client-state'), text, className)
      }
    },
  }
}
