/** @typedef {import('../rights.ts').Operator} Operator */

/**
 * The operator, once the gateway has named it. The gateway checks each right itself: the page only
 * does not offer what would be refused.
 * @type {Operator | undefined}
 */
let current

/** @param {Operator} operator */
export const setOperator = (operator) => void (current = operator)

export const mayReset = () => current?.may === 'set'

/**
 * True if the operator may change a limit.
 * @param {string} limit
 */
export const maySet = (limit) => mayReset() || (Array.isArray(current?.may) && current.may.includes(limit))

/**
 * Returns the name and the rights of an operator, in words.
 * @param {Operator} operator
 */
export function describeOperator({ name, may }) {
  if (may === 'read') return `${name}, may only read`
  return may === 'set' ? name : `${name}, may change only ${may.join(', ')}`
}
