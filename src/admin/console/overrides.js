import { ask } from './api.js'
import { byId, element, table, write } from './dom.js'
import { time, whole } from './format.js'
import { maySet } from './rights.js'

/** @typedef {{ readonly caller: string, readonly name: string, readonly limit: number, readonly until: string | null }} Override */
/** @typedef {readonly [text: string, className: string]} Message */

const dialog = /** @type {HTMLDialogElement} */ (byId('confirm'))

/**
 * Asks for confirmation; resolves with false if the dialog is dismissed.
 * @param {string} title
 * @param {string} text
 * @param {string} label of the button
 */
export function confirmed(title, text, label) {
  write(byId('confirm-title'), title)
  write(byId('confirm-text'), text)
  write(byId('confirm-yes'), label)
  dialog.returnValue = ''
  dialog.showModal()
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => resolve(dialog.returnValue === 'yes'), { once: true })
  })
}

/** Closes the dialog: the back button works even while it is open. */
export const dismiss = () => dialog.close()

/** @param {unknown} error */
export const reasonOf = (error) => (error instanceof Error ? error.message : '')

/**
 * Sets a caller's limits, or removes the overrides of those that are null; returns what to report.
 * @param {string} caller
 * @param {Readonly<Record<string, number | null>>} set
 * @param {{ readonly until?: string | null, readonly note?: string }} [more]
 * @returns {Promise<Message>}
 */
export async function setLimits(caller, set, more = {}) {
  try {
    const body = { set, ...more }
    const response = await ask(`/limits/${encodeURIComponent(caller)}`, { method: 'PATCH', body })
    const { caller: shown, limits, shared, seen } = await response.json()
    const changes = limits.map(
      (/** @type {{ name: string, after: { limit: number } | null }} */ { name, after }) =>
        `“${name}” ${set[name] === null ? 'is no longer overridden' : 'is overridden'}${after === null ? '' : ` and allows ${whole(after.limit)}`}`,
    )
    const where = shared ? 'at every gateway within a second' : 'in this process, until it ends'
    const doubt = seen ? '' : ' No call of this caller is counted: check its spelling.'
    return [`For “${shown}”, ${changes.join(', ')}, ${where}.${doubt}`, seen ? 'good' : 'near']
  } catch (error) {
    return [`The limit was not changed: ${reasonOf(error)}`, 'refused']
  }
}

/**
 * Creates a table of overrides with buttons that remove them; returns the function that shows its rows.
 * @param {Element} parent
 * @param {string} caption
 * @param {(message: Message, caller: string) => void} report
 */
export function overridesTable(parent, caption, report) {
  /** @returns {import('./dom.js').View<any>} */
  function remove() {
    const node = element('button', { type: 'button' }, 'Remove…')
    /** @type {Override | undefined} */
    let shown
    node.addEventListener('click', () => void askFirst())
    async function askFirst() {
      if (shown === undefined) return
      const { caller, name, limit } = shown
      const text = `“${caller}” gets the limit of the file for “${name}” again, instead of ${whole(limit)}.`
      if (await confirmed('Remove this override?', text, 'Remove'))
        report(await setLimits(caller, { [name]: null }), caller)
    }
    return {
      node,
      update(override) {
        shown = override
        node.hidden = !maySet(override.name)
        node.setAttribute('aria-label', `Remove the override of ${override.name} for ${override.caller}…`)
      },
    }
  }
  return table(parent, caption, ({ caller, name }) => `${name} ${caller}`, [
    { head: 'Caller', text: ({ caller }) => caller },
    { head: 'Limit', text: ({ name }) => name },
    { head: 'Calls', numeric: true, text: ({ limit }) => whole(limit) },
    {
      head: 'Until',
      text: ({ until, applies }) =>
        applies === false ? 'without effect: no such limit' : until === null ? 'no end' : time(until),
    },
    { head: 'Set', text: ({ set, by }) => (set ? `${time(set)}${by ? ` by ${by}` : ''}` : '–') },
    { head: 'Note', text: ({ note }) => note ?? '–' },
    { head: 'Remove', view: remove },
  ])
}
