import type { ListenerEvents } from '../../src/downstream/listener/server.ts'

/** The events of a listener, none of which is observed. */
export const SILENT: ListenerEvents = {
  unreadable() {},
  insecure() {},
  idField: () => 'X-Request-Id',
  trusts: () => false,
  dropped() {},
  unproxied() {},
}
