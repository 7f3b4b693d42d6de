import type { Quota } from '../../src/limit/quota.ts'
import type { Inspected, Store } from '../../src/limit/store.ts'

/** Returns a store without a fallback as operators read one with a fallback. */
export const inspectedStore = <S extends Pick<Store, 'peek'>>(store: S) => ({
  ...store,
  inspect: async (quotas: readonly Quota[]): Promise<readonly Inspected[]> =>
    (await store.peek(quotas)).map((allowance) => ({ allowance, mode: 'store' })),
})
