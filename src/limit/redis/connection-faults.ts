import { configError, isGeneric, type StoreConfigError } from './diagnose.ts'

/** Tracks why a Redis cannot be used: the last error of its connection, and what contradicts the configuration. */
export function createConnectionFaults() {
  let lastError: Error | undefined
  let misconfiguration: StoreConfigError | undefined
  let onMisconfigured: ((error: StoreConfigError) => void) | undefined

  return {
    /** Records an error of the connection. */
    record(error: Error & { readonly lastNodeError?: Error }): void {
      // A closed connection, or a failure of all nodes, is a less specific reason than an earlier error.
      if (lastError === undefined || !(isGeneric(error) || error.lastNodeError)) {
        lastError = error.lastNodeError ?? error
      }
    },

    /** Returns the StoreConfigError of an error, if there is one, and reports a new one to the listener. */
    report(error: unknown): StoreConfigError | undefined {
      const wrong = configError(error)
      if (wrong === undefined) return undefined
      const isNew = wrong.advice !== misconfiguration?.advice
      misconfiguration = wrong
      if (isNew) onMisconfigured?.(wrong)
      return wrong
    },

    /** Forgets the errors of attempts to connect. */
    connected(): void {
      lastError = undefined
    },

    /** Forgets what contradicted the configuration. */
    verified(): void {
      misconfiguration = undefined
    },

    /** Sets the listener to new contradictions. */
    listen(listener: typeof onMisconfigured): void {
      onMisconfigured = listener
    },

    last: (): Error | undefined => lastError,
    misconfiguration: (): StoreConfigError | undefined => misconfiguration,
  }
}
