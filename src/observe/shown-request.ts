import type { Exchange } from '../gateway/exchange.ts'

/** Decides which parts of a request and of addresses are in the log and in spans. */
export interface ShownRequest {
  /** Returns an address, or its network; null if addresses are left out. */
  addressOf(address: string): string | null
  /** Formats a counted caller; empty if nothing of it may be shown. */
  shownAs(caller: Exchange['callers'][number]): string
  /** Returns the path of a request; undefined if it has none, or no route. */
  pathOf(exchange: Pick<Exchange, 'path' | 'route'>): string | undefined
}

/** Shows everything, as the default settings do. */
export const SHOW_ALL: ShownRequest = {
  addressOf: (address) => address,
  shownAs: ({ shown }) => shown,
  pathOf: ({ path }) => path,
}

/** Returns the path of the route as configured, without methods and host. */
export const routePath = ({ route }: Pick<Exchange, 'route'>): string | undefined =>
  route?.match.slice(route.match.indexOf('/'))
