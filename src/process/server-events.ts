import type { Log } from '../observe/log.ts'

/** Logs, with these fields, when a server that is asked in the background fails, and when it works again. */
export const serverEvents = (log: Pick<Log, 'info' | 'warn'>, what: string, fields: object) => ({
  onDown: ({ message: reason }: Error) => log.warn({ ...fields, reason }, `${what} failed; retrying`),
  onUp: () => log.info(fields, `${what} works again`),
})
