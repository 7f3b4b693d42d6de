import { svg } from './dom.js'
import { rate, whole } from './format.js'

const HEIGHT = 150
const LEFT = 40
const BOTTOM = 20
const TOP = 8
const SPARK = { width: 120, height: 24 }

/**
 * Creates a chart of calls and refusals per second; returns the function that draws both series, oldest first.
 * @param {Element} parent
 * @param {string} what
 * @param {number} everySeconds between two marks of the time axis
 */
export function chart(parent, what, everySeconds) {
  const node = svg('svg', { class: 'chart', role: 'img', height: HEIGHT })
  parent.append(node)
  return (/** @type {readonly number[]} */ calls, /** @type {readonly number[]} */ refused) => {
    const width = Math.max(200, parent.clientWidth)
    const seconds = Math.max(2, calls.length)
    const top = niceAbove(Math.max(1, ...calls))
    const x = (/** @type {number} */ i) => LEFT + ((width - LEFT - 1) * i) / (seconds - 1)
    const y = (/** @type {number} */ value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top)
    node.setAttribute('viewBox', `0 0 ${width} ${HEIGHT}`)
    node.setAttribute('width', String(width))
    node.setAttribute(
      'aria-label',
      `${what}: ${rate(calls)} a second now, at most ${whole(Math.max(0, ...calls))}; ${rate(refused)} refused a second now`,
    )
    node.replaceChildren(
      ...hatching(),
      ...[0, top / 2, top].flatMap((value) => [
        svg('line', { class: 'grid', x1: LEFT, x2: width, y1: y(value), y2: y(value) }),
        svg(
          'text',
          { x: LEFT - 6, y: y(value) + 4, 'text-anchor': 'end' },
          Number.isInteger(value) ? whole(value) : String(value),
        ),
      ]),
      ...timeMarks(seconds, everySeconds, x),
      svg('path', { class: 'area', d: area(calls, x, y) }),
      svg('path', { class: 'line', d: line(calls, x, y) }),
      svg('path', { class: 'refused-area', d: area(refused, x, y) }),
      svg('path', { class: 'refused-line', d: lineAbove0(refused, x, y) }),
    )
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

/** Marks refused calls, also without colour. */
function hatching() {
  const lines = svg('path', { class: 'hatch', d: 'M0 6L6 0M-1 1L1 -1M5 7L7 5' })
  return [
    svg(
      'defs',
      {},
      svg('pattern', { id: 'hatching', width: 6, height: 6, patternUnits: 'userSpaceOnUse' }, lines),
    ),
  ]
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
