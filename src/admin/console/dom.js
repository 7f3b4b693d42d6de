/** @typedef {Readonly<Record<string, string | number>>} Attributes */

/**
 * Returns the element of the page with this id.
 * @param {string} id
 */
export function byId(id) {
  const found = document.getElementById(id)
  if (found === null) throw new Error(`no element ${id}`)
  return found
}

/**
 * @param {string} tag
 * @param {Attributes} [attributes]
 * @param {readonly (Node | string)[]} children
 */
export function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children)
}

/**
 * @param {string} tag
 * @param {Attributes} [attributes]
 * @param {readonly (Node | string)[]} children
 */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children)
}

/**
 * @template {Element} E
 * @param {E} node
 * @param {Attributes} attributes
 * @param {readonly (Node | string)[]} children
 */
function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value))
  node.append(...children.map((child) => (typeof child === 'string' ? visible(child) : child)))
  return node
}

/**
 * Escapes characters that are not shown, or that change how others are: a client id with one looks like another.
 * @param {string} text
 */
const visible = (text) =>
  text.replaceAll(/[\p{Cc}\p{Default_Ignorable_Code_Point}\u2028\u2029]/gu, (char) =>
    char.replaceAll(/[^]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`),
  )

/**
 * Writes text only if it differs, so that a selection stays.
 * @param {Element} node
 * @param {string} text
 * @param {string} [className]
 */
export function write(node, text, className) {
  const shown = visible(text)
  if (node.textContent !== shown) node.textContent = shown
  if (className !== undefined && node.getAttribute('class') !== className)
    node.setAttribute('class', className)
}

/**
 * A node that shows one item, and the function that updates it.
 * @template T
 * @typedef {{ readonly node: Element, update(item: T): void }} View
 */

/**
 * Returns a function that shows a list, with one node for each key in it. No node moves while one has the focus or the pointer.
 * @template T
 * @param {Element} parent
 * @param {(item: T) => string} keyOf
 * @param {(item: T) => View<T>} create
 * @returns {(items: readonly T[]) => void}
 */
export function list(parent, keyOf, create) {
  /** @type {Map<string, View<T>>} */
  let views = new Map()
  return (items) => {
    const held = parent.matches(':hover, :focus-within')
    const next = new Map(items.map((item) => [keyOf(item), views.get(keyOf(item)) ?? create(item)]))
    for (const [key, { node }] of views) if (!next.has(key)) node.remove()
    for (const item of items) next.get(keyOf(item))?.update(item)
    views = next
    let at = 0
    for (const { node } of next.values()) {
      const there = parent.children[at++] ?? null
      if (there !== node && !(held && node.parentNode === parent))
        parent.insertBefore(node, held ? null : there)
    }
  }
}

/**
 * Creates a view of text with a class, so that no meaning depends on a colour.
 * @template T
 * @param {(item: T) => readonly [text: string, className: string]} of
 * @returns {View<T>}
 */
export function words(of) {
  const node = element('span')
  return { node, update: (item) => write(node, ...of(item)) }
}

/**
 * Creates a view of lines of text with a class.
 * @template T
 * @param {(item: T) => readonly [texts: readonly string[], className: string]} of
 * @returns {View<T>}
 */
export function lines(of) {
  const node = element('div')
  const show = list(node, String, (text) => ({ node: element('div', {}, text), update() {} }))
  return {
    node,
    update(item) {
      const [texts, className] = of(item)
      node.setAttribute('class', className)
      show(texts)
    },
  }
}

/**
 * A column of a table: its head, and either the text or the views of its cells.
 * @template T
 * @typedef {object} Column
 * @property {string} head
 * @property {boolean} [numeric]
 * @property {(item: T) => string} [text]
 * @property {() => View<T>} [view]
 */

/**
 * Creates a table, and returns the function that shows its rows or, if there are none, the element `no-…` with the id of the parent.
 * Narrow screens show the cells below each other, each with its head.
 * @template T
 * @param {Element} parent
 * @param {string} caption
 * @param {(item: T) => string} keyOf
 * @param {readonly Column<T>[]} columns
 * @returns {(items: readonly T[]) => void}
 */
export function table(parent, caption, keyOf, columns) {
  const body = element('tbody', { role: 'rowgroup' })
  const heads = columns.map(({ head, numeric }) =>
    element('th', { scope: 'col', role: 'columnheader', class: numeric === true ? 'numeric' : '' }, head),
  )
  const head = element('thead', { role: 'rowgroup' }, element('tr', { role: 'row' }, ...heads))
  const node = element(
    'table',
    { role: 'table' },
    element('caption', { class: 'hidden' }, caption),
    head,
    body,
  )
  parent.append(node)
  const show = list(body, keyOf, () => row(columns))
  const none = document.getElementById(`no-${parent.id}`)
  return (items) => {
    node.toggleAttribute('hidden', items.length === 0)
    none?.toggleAttribute('hidden', items.length > 0)
    show(items)
  }
}

/**
 * Shows only the first rows of a table until all are asked for, with the button `all-…` in the element `more-…`.
 * @template T
 * @param {string} id of the table's parent
 * @param {number} count of the rows
 * @param {(items: readonly T[]) => void} show
 * @returns {(items: readonly T[]) => void}
 */
export function firstRows(id, count, show) {
  const button = byId(`all-${id}`)
  let areAllShown = false
  /** @type {readonly T[]} */
  let latest = []
  function update(/** @type {readonly T[]} */ items) {
    latest = items
    byId(`more-${id}`).hidden = items.length <= count
    show(areAllShown ? items : items.slice(0, count))
  }
  button.addEventListener('click', () => {
    areAllShown = !areAllShown
    write(button, areAllShown ? `Show ${count}` : 'Show all')
    update(latest)
  })
  return update
}

/**
 * @template T
 * @param {readonly Column<T>[]} columns
 * @returns {View<T>}
 */
function row(columns) {
  const views = columns.map(({ text, view }) => view?.() ?? plain(text))
  const cells = columns.map(({ head, numeric }, i) => {
    const attributes = { 'data-head': head, class: numeric === true ? 'numeric' : '' }
    const node = views[i]?.node ?? ''
    return i === 0
      ? element('th', { ...attributes, scope: 'row', role: 'rowheader' }, node)
      : element('td', { ...attributes, role: 'cell' }, node)
  })
  return {
    node: element('tr', { role: 'row' }, ...cells),
    update(item) {
      for (const view of views) view.update(item)
    },
  }
}

/**
 * @template T
 * @param {((item: T) => string) | undefined} text
 * @returns {View<T>}
 */
function plain(text) {
  const node = element('span')
  return { node, update: (item) => write(node, text?.(item) ?? '') }
}
