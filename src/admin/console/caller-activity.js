import { chart } from './chart.js'
import { stateOf } from './callers.js'
import { byId, write } from './dom.js'
import { rateText, refusal, refusals, whole } from './format.js'
import { tiles } from './tiles.js'

/** @typedef {import('./api.js').Overview} Overview */

/** Calls in each second of a minute without any. */
const NO_CALLS = Array(60).fill(0)

/** @param {readonly number[]} counts */
const total = (counts) => counts.reduce((sum, count) => sum + count, 0)

/** Creates the chart, the tiles and the state of one caller in the last minute; returns the function that shows them. */
export function callerActivity() {
  const showCalls = chart(byId('caller-calls'), 'Calls of this caller', 15)
  const showTiles = tiles(byId('caller-tiles'))
  return (/** @type {Overview['activity']} */ { callers, until }, /** @type {string} */ name) => {
    const found = callers.find(({ caller }) => caller === name)
    const { calls, refused } = found ?? { calls: NO_CALLS, refused: NO_CALLS }
    const rates = { calls: found?.callsPerSecond ?? 0, refused: found?.refusedPerSecond ?? 0 }
    showCalls({ calls, refused }, rates, until)
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
      { name: 'Refused now', ...refusal(found?.refusedNow) },
    ])
    if (found === undefined) {
      const text = 'No call in the last minute, or not among the busiest callers.'
      write(byId('caller-state'), text, 'state muted')
    } else {
      const { text, className } = stateOf(found)
      write(byId('caller-state'), text, className)
    }
  }
}
