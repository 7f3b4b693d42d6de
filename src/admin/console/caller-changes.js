import { ask } from './api.js'
import { showMessage } from './caller-message.js'
import { byId, element, list, write } from './dom.js'
import { pluralize, time } from './format.js'
import { confirmed, overridesTable, reasonOf, setLimits } from './overrides.js'
import { mayReset, maySet } from './rights.js'

/** @typedef {import('../requests/operator-api.ts').CallerReport} CallerReport */

/**
 * A caller with what may be changed for it.
 * @typedef {object} Changeable
 * @property {string} name by which the gateway finds the caller
 * @property {string} shownAs The name without a secret
 * @property {boolean} isCounted False if no limit counts the caller
 * @property {readonly string[]} settable Names of the limits
 * @property {CallerReport['overrides']} overrides
 */

const HOUR_MS = 3_600_000

/** @param {string} field of the form that sets a limit */
const valueOf = (field) => /** @type {HTMLInputElement} */ (byId(`set-${field}`)).value.trim()

/**
 * Creates the reset, the form that sets a limit, and the table of overrides of one caller; returns the function that
 * shows those that the operator may use.
 * @param {(name: string, showOutcome: () => void) => void} onChanged Called after each attempt, with the name of the
 *   caller whose page was open at its start
 * @returns {(caller: Changeable) => void}
 */
export function callerChanges(onChanged) {
  const showNames = list(
    byId('set-limit'),
    (/** @type {string} */ name) => name,
    (name) => ({ node: element('option', { value: name }, name), update() {} }),
  )
  const showOverrides = overridesTable(byId('caller-overrides'), 'Overrides of this caller', report)
  /** @type {Changeable | undefined} */
  let shown
  byId('reset').addEventListener('click', () => {
    if (shown !== undefined) void reset(shown)
  })
  byId('set').addEventListener('submit', (event) => {
    event.preventDefault()
    if (shown !== undefined) void set(shown)
  })

  function report(
    /** @type {import('./overrides.js').Message} */ [text, className],
    /** @type {string} */ name,
  ) {
    onChanged(name, () => write(byId('set-message'), text, className))
  }

  async function set(/** @type {Changeable} */ { name }) {
    const [limit, calls, hours, note] = [
      valueOf('limit'),
      valueOf('calls'),
      valueOf('hours'),
      valueOf('note'),
    ]
    const until = hours === '' ? null : new Date(Date.now() + Number(hours) * HOUR_MS).toISOString()
    const more = { until, ...(note !== '' && { note }) }
    report(await setLimits(name, { [limit]: Number(calls) }, more), name)
  }

  async function reset(/** @type {Changeable} */ { name, shownAs }) {
    const text = `Deletes all counted calls of “${shownAs}”, at every gateway. The caller starts with full limits again.`
    if (!(await confirmed('Reset this caller?', text, 'Reset'))) return
    const outcome = await resetCaller(name)
    onChanged(name, () => showMessage(...outcome))
  }

  return (caller) => {
    shown = caller
    const { isCounted, settable, overrides } = caller
    const names = settable.filter(maySet)
    byId('reset').hidden = !isCounted || !mayReset()
    byId('set-card').hidden = !isCounted
    byId('set').hidden = names.length === 0
    write(byId('set-title'), names.length === 0 ? 'Overrides' : 'Set a limit')
    showNames(names)
    showOverrides(overrides)
  }
}

/**
 * Deletes the counted calls of a caller; returns the message to show.
 * @param {string} name
 * @returns {Promise<Parameters<typeof showMessage>>}
 */
async function resetCaller(name) {
  try {
    const response = await ask(`/limits/${encodeURIComponent(name)}`, { method: 'DELETE' })
    const { freed, keepsPlaces } = await response.json()
    const note = keepsPlaces ? ' Calls in progress keep their places.' : ''
    return [`Reset: ${pluralize(freed, 'counter')} freed at ${time(Date.now())}.${note}`, 'reset']
  } catch (error) {
    return [`The reset failed: ${reasonOf(error)}`, 'failed']
  }
}
