import { type CallerPart, type CountedCaller, showCaller } from '../policy/counted-caller.ts'
import { wordOf } from '../policy/words.ts'
import { truncateAddress } from '../runtime/address.ts'
import { routePath, SHOW_ALL, type ShownRequest } from './shown-request.ts'

/** The settings for personal data in log and spans. */
interface Settings {
  /** `route`: the path of the matched route in place of the request's. */
  readonly path: 'full' | 'route'
  /** `truncated`: only the network, IPv4 by its /24, IPv6 by its /48. */
  readonly ip: 'full' | 'truncated' | 'none'
}

/** Decides what log and spans contain. Not part of `shown-request.ts`: commands load that without packages. */
export function createShownRequest({ path, ip }: Settings) {
  /** Returns an address, also the /64 of a counted caller, as it may be shown. */
  function addressOf(address: string): string | null {
    if (ip === 'full') return address
    return ip === 'none' ? null : truncateAddress(address.split('/', 1)[0]!)
  }

  /** Formats a caller for the log; empty if nothing of it is left. */
  function callerText(caller: CountedCaller): string {
    const shown = caller.flatMap(({ word, value }): CallerPart[] => {
      const open = wordOf(word).compares === 'network' ? addressOf(value) : value
      return open === null ? [] : [{ word, value: open }]
    })
    return showCaller(shown)
  }

  return {
    addressOf,
    callerText,
    shownAs: ip === 'full' ? SHOW_ALL.shownAs : ({ parts }) => callerText(parts),
    pathOf: path === 'full' ? SHOW_ALL.pathOf : routePath,
  } satisfies ShownRequest & { callerText(caller: CountedCaller): string }
}
