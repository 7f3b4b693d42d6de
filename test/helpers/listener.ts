import type { ListenerEvents } from '../../src/downstream/listener/server.ts'

/** The events of a listener, without an observer. */
export const SILENT: ListenerEvents = {
  unreadable() {},
  insecure() {},
  idField: () => 'X-Request-Id',
  trusts: () => false,
  dropped() {},
  unproxied() {},
}
