import { byId, write } from './dom.js'

/** @typedef {'reading' | 'unread' | 'reset' | 'failed'} Kind */

/** @type {Readonly<Record<Kind, string>>} */
const CLASSES = { reading: 'muted', reset: 'good', unread: 'refused', failed: 'refused' }

/**
 * Shows the outcome of a read or a reset.
 * @param {string} text
 * @param {Kind} kind
 */
export function showMessage(text, kind) {
  const node = byId('caller-message')
  node.dataset['kind'] = kind
  write(node, text, CLASSES[kind])
}

/** Clears the message if it is about a read: that of a reset stays. */
export function clearReadMessage() {
  const { kind = '' } = byId('caller-message').dataset
  if (kind === 'reading' || kind === 'unread') showMessage('', 'reading')
}
