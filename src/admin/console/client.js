import { ask } from './api.js'
import { chart } from './chart.js'
import { stateOf, usage } from './clients.js'
import { byId, element, table, write } from './dom.js'
import { counted, duration, kindOf, notesOf, rate, refusal, refusals, time, whole } from './format.js'
import { tiles } from './tiles.js'

/** @typedef {import('./api.js').Overview} Overview */
/** @typedef {import('../../limit/usage.ts').ClientUsage} ClientUsage */
/** @typedef {ClientUsage['limits'][number]} Counted */

const EVERY_MS = 2000
/** Reading may scan all of Redis: it takes no more than this part of the time. */
const PAUSE_PART = 20

/** @param {readonly number[]} counts */
const total = (counts) => counts.reduce((sum, count) => sum + count, 0)

/**
 * Says how a reading or a reset ended; what a reading says, the next one replaces.
 * @param {string} text
 * @param {'reading' | 'unread' | 'reset' | 'failed'} kind
 */
function say(text, kind) {
  const node = byId('client-message')
  node.dataset['kind'] = kind
  write(node, text, { reading: 'muted', reset: 'good', unread: 'refused', failed: 'refused' }[kind])
}

/** Says nothing more of readings. */
function sayRead() {
  const { kind = '' } = byId('client-message').dataset
  if (kind === 'reading' || kind === 'unread') say('', 'reading')
}

/** Creates the page of one client, which reads its limits as long as it is open. */
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
      text: ({ windowSeconds }) => duration(windowSeconds),
    },
    {
      head: 'Next call freed',
      text: ({ limit, remaining, reset }) => (remaining < limit ? time(reset) : '–'),
    },
    { head: 'Kind', text: kindOf },
  ])
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
      byId('client-notes').replaceChildren(...notesOf(used).map((note) => element('li', {}, note)))
      sayRead()
    } catch (error) {
      if (signal.aborted) return
      say(`The limits cannot be read: ${error instanceof Error ? error.message : ''}`, 'unread')
    }
    const pauseMs = Math.max(EVERY_MS, PAUSE_PART * (performance.now() - startedAt))
    setTimeout(() => {
      if (!signal.aborted) void read(signal)
    }, pauseMs)
  }

  /** Reads now, and again and again. */
  function start() {
    opened?.abort()
    opened = new AbortController()
    void read(opened.signal)
  }

  const dialog = /** @type {HTMLDialogElement} */ (byId('confirm'))
  /** Whom the dialog names: another client may be opened while it closes. */
  let named = ''
  byId('reset').addEventListener('click', () => {
    named = client
    write(
      byId('confirm-text'),
      `All calls counted of “${client}” are forgotten, at every gateway. It may then use its limits anew.`,
    )
    dialog.returnValue = ''
    dialog.showModal()
  })
  dialog.addEventListener('close', () => {
    if (dialog.returnValue === 'reset') void reset(named)
  })

  async function reset(/** @type {string} */ name) {
    /** @type {Parameters<typeof say>} */
    let end
    try {
      const response = await ask(`/limits/${encodeURIComponent(name)}`, { method: 'DELETE' })
      const { freed } = await response.json()
      end = [`Reset: ${counted(freed, 'counter')} freed at ${time(Date.now())}.`, 'reset']
    } catch (error) {
      end = [`The reset failed: ${error instanceof Error ? error.message : ''}`, 'failed']
    }
    // The page may have been left meanwhile.
    if (client !== name || opened?.signal.aborted) return
    say(...end)
    start()
  }

  function close() {
    opened?.abort()
    // History goes on behind a modal dialog.
    dialog.close()
  }

  return {
    open(/** @type {string} */ name) {
      close()
      client = name
      write(byId('client-name'), name)
      say('Reading what is counted…', 'reading')
      showLimits([])
      byId('client-notes').replaceChildren()
      start()
    },
    close,
    resume: start,
    show(/** @type {Overview} */ { activity }) {
      const found = activity.clients.find((one) => one.client === client)
      const idle = Array(60).fill(0)
      const { calls, refused, refusedNow } = found ?? { calls: idle, refused: idle, refusedNow: null }
      showCalls(calls, refused)
      showTiles([
        { name: 'Calls', text: `${rate(calls)}/s`, note: `${whole(total(calls))} in the last minute` },
        { name: 'Refused', text: `${rate(refused)}/s`, note: refusals(total(refused), found?.limits ?? []) },
        {
          name: 'Refused now',
          ...refusal(refusedNow),
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
