import { element, svg, write } from './dom.js'
import { rateText, valuesAt, whole } from './format.js'

const HEIGHT = 150
const LEFT = 40
const BOTTOM = 20
const TOP = 8
const HINT = 'Point at a second, or press the arrow keys in the chart, to see its values.'
const SPARK = { width: 120, height: 24 }

/**
 * Calls of each second, oldest first; those that limits refused, and those that failed.
 * @typedef {{ readonly calls: readonly number[], readonly refused: readonly number[], readonly failed?: readonly number[] }} Series
 * @typedef {{ readonly calls: number, readonly refused: number, readonly failed?: number }} Rates
 */

/**
 * Creates a chart of calls per second, with the values of the second that the pointer or the keyboard selects.
 * Returns the function that draws the series that end at an instant.
 * @param {Element} parent
 * @param {string} what
 * @param {number} everySeconds between two marks of the time axis
 */
export function chart(parent, what, everySeconds) {
  const node = svg('svg', { class: 'chart', role: 'slider', tabindex: 0, height: HEIGHT, 'aria-valuemin': 0 })
  const drawing = svg('g')
  const mark = svg('line', { class: 'mark', y1: TOP, y2: HEIGHT - BOTTOM })
  const values = element('p', { class: 'muted' })
  node.append(drawing, mark)
  parent.append(node, values)
  /** @type {Series} */
  let series = { calls: [], refused: [] }
  let end = ''
  let width = 0
  /** Seconds between the selected one and the last. @type {number | undefined} */
  let ago
  /** True if the selection stays at its instant, false if it stays under the pointer. */
  let isHeld = false

  const last = () => Math.max(1, series.calls.length - 1)
  const x = (/** @type {number} */ i) => LEFT + ((width - LEFT - 1) * i) / last()
  function showSelected() {
    const i = last() - (ago ?? 0)
    const text = valuesAt(series, end, i)
    mark.toggleAttribute('hidden', ago === undefined)
    for (const side of ['x1', 'x2']) mark.setAttribute(side, String(x(i)))
    write(values, ago === undefined ? HINT : text)
    node.setAttribute('aria-valuemax', String(last()))
    node.setAttribute('aria-valuenow', String(i))
    node.setAttribute('aria-valuetext', text)
  }
  /** @param {number | undefined} next @param {boolean} held */
  function select(next, held) {
    ago = next === undefined ? undefined : Math.min(last(), Math.max(0, next))
    isHeld = held
    showSelected()
  }
  node.addEventListener('pointermove', (event) => {
    const { left } = node.getBoundingClientRect()
    const part = (event.clientX - left - LEFT) / (width - LEFT - 1)
    select(Math.round((1 - part) * last()), false)
  })
  node.addEventListener('pointerleave', () => select(undefined, false))
  node.addEventListener('blur', () => select(undefined, false))
  node.addEventListener('focus', () => select(ago ?? 0, true))
  node.addEventListener('keydown', (event) => {
    const { key } = event
    const shown = ago ?? 0
    const next = { ArrowLeft: shown + 1, ArrowRight: shown - 1, Home: last(), End: 0 }[key]
    if (next === undefined) return
    event.preventDefault()
    select(next, true)
  })

  return (/** @type {Series} */ next, /** @type {Rates} */ rates, /** @type {string} */ until) => {
    const passed = Math.round((Date.parse(until) - Date.parse(end)) / 1000)
    if (isHeld && ago !== undefined) ago = Math.min(last(), ago + passed)
    series = next
    end = until
    width = Math.max(200, parent.clientWidth)
    const { calls, refused, failed } = series
    const top = niceAbove(Math.max(1, ...calls))
    const y = (/** @type {number} */ value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top)
    node.setAttribute('viewBox', `0 0 ${width} ${HEIGHT}`)
    node.setAttribute('width', String(width))
    const failures = failed === undefined ? '' : `, ${rateText(rates.failed ?? 0)} failed`
    node.setAttribute(
      'aria-label',
      `${what}: ${rateText(rates.calls)} a second now, at most ${whole(Math.max(0, ...calls))}; ${rateText(rates.refused)} refused a second now${failures}`,
    )
    drawing.replaceChildren(
      ...[0, top / 2, top].flatMap((value) => [
        svg('line', { class: 'grid', x1: LEFT, x2: width, y1: y(value), y2: y(value) }),
        svg(
          'text',
          { x: LEFT - 6, y: y(value) + 4, 'text-anchor': 'end' },
          Number.isInteger(value) ? whole(value) : String(value),
        ),
      ]),
      ...timeMarks(last() + 1, everySeconds, x),
      svg('path', { class: 'area', d: area(calls, x, y) }),
      svg('path', { class: 'line', d: line(calls, x, y) }),
      svg('path', { class: 'refused-area', d: area(refused, x, y) }),
      svg('path', { class: 'refused-line', d: lineAbove0(refused, x, y) }),
      svg('path', { class: 'failed-area', d: area(failed ?? [], x, y) }),
      svg('path', { class: 'failed-line', d: lineAbove0(failed ?? [], x, y) }),
    )
    showSelected()
  }
}

/**
 * @param {number} seconds
 * @param {number} every
 * @param {(i: number) => number} x
 */
function timeMarks(seconds, every, x) {
  const marks = []
  for (let ago = 0; ago < seconds; ago += every) {
    const unit = every % 60 === 0 ? `${ago / 60} min` : `${ago} s`
    const text = ago === 0 ? 'now' : `−${unit}`
    const anchor = ago === 0 ? 'end' : 'middle'
    marks.push(svg('text', { x: x(seconds - 1 - ago), y: HEIGHT - 4, 'text-anchor': anchor }, text))
  }
  return marks
}

/**
 * Creates a small chart for a table, next to its numbers.
 * @param {{ readonly calls: readonly number[], readonly refused: readonly number[] }} first
 */
export function sparkline(first) {
  const { width, height } = SPARK
  const calls = svg('path', { class: 'line' })
  const refused = svg('path', { class: 'refused-line' })
  const node = svg(
    'svg',
    { class: 'spark', viewBox: `0 0 ${width} ${height}`, width, height, 'aria-hidden': 'true' },
    calls,
    refused,
  )
  const update = (/** @type {typeof first} */ series) => {
    const top = Math.max(1, ...series.calls)
    const x = (/** @type {number} */ i) => 1 + ((width - 2) * i) / Math.max(1, series.calls.length - 1)
    const y = (/** @type {number} */ value) => 2 + (height - 4) * (1 - value / top)
    calls.setAttribute('d', line(series.calls, x, y))
    refused.setAttribute('d', lineAbove0(series.refused, x, y))
  }
  update(first)
  return { node, update }
}

/** Creates a bar that shows the used part of a limit, next to the numbers. */
export function bar() {
  const used = svg('rect', { class: 'used', height: 8, width: 0 })
  const node = svg(
    'svg',
    { class: 'bar', viewBox: '0 0 100 8', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
    svg('rect', { class: 'track', width: 100, height: 8 }),
    used,
  )
  return {
    node,
    /** @param {number} part from 0 to 1 */
    update(part) {
      used.setAttribute('width', String(Math.round(100 * Math.min(1, part))))
      used.setAttribute('class', `used ${part >= 1 ? 'full' : part >= 0.8 ? 'near' : ''}`)
    },
  }
}

/**
 * @param {readonly number[]} values
 * @param {(i: number) => number} x
 * @param {(value: number) => number} y
 */
function line(values, x, y) {
  return values.map((value, i) => `${i === 0 ? 'M' : 'L'}${x(i).toFixed(1)} ${y(value).toFixed(1)}`).join('')
}

/**
 * Draws only the parts above 0.
 * @param {readonly number[]} values
 * @param {(i: number) => number} x
 * @param {(value: number) => number} y
 */
function lineAbove0(values, x, y) {
  let path = ''
  let before = 0
  for (const [i, value] of values.entries()) {
    const isAbove = value > 0 || before > 0
    if (isAbove && i > 0) path += `M${x(i - 1)} ${y(before)}L${x(i)} ${y(value)}`
    before = value
  }
  return path
}

/**
 * @param {readonly number[]} values
 * @param {(i: number) => number} x
 * @param {(value: number) => number} y
 */
function area(values, x, y) {
  if (values.length === 0) return ''
  return `${line(values, x, y)}L${x(values.length - 1).toFixed(1)} ${y(0)}L${x(0).toFixed(1)} ${y(0)}Z`
}

/** @param {number} value */
function niceAbove(value) {
  const power = 10 ** Math.floor(Math.log10(value))
  return ([1, 2, 4, 6, 8, 10].find((step) => step * power >= value) ?? 10) * power
}
