import { size } from '../units.ts'

/** A line that says how far a long reading has come. */
export interface Progress {
  at(bytes: number, lines: number): void
  /** Takes the line away. */
  end(): void
}

/** Where it is drawn: a terminal, or something that no line is drawn on. */
export type Screen = Pick<NodeJS.WriteStream, 'isTTY' | 'write'> & { readonly columns?: number }

const EVERY_MS = 100
const BAR_CHARS = 24
const NARROWEST = 40
const ERASE = '\r\u001B[K'

/** Draws a bar on a terminal, and nothing elsewhere; without a total, how much was read alone. */
export function createProgress(screen: Screen, totalBytes: number | undefined): Progress {
  if (!screen.isTTY) return { at: () => {}, end: () => {} }
  const startedAt = performance.now()
  let drawnAt = -Infinity

  return {
    at(bytes, lines) {
      const now = performance.now()
      if (now - drawnAt < EVERY_MS) return
      drawnAt = now
      const words = [
        ...(totalBytes === undefined
          ? [approximately(bytes)]
          : [...bar(bytes, totalBytes), remaining(bytes, totalBytes, now - startedAt)]),
        `${lines} lines`,
      ]
      screen.write(ERASE + words.join('  ').slice(0, Math.max(NARROWEST, screen.columns ?? 80) - 1))
    },
    end() {
      if (drawnAt !== -Infinity) screen.write(ERASE)
    },
  }
}

function bar(bytes: number, totalBytes: number): readonly string[] {
  // A log that is still being written grows beyond what it was.
  const part = totalBytes === 0 ? 1 : Math.min(1, bytes / totalBytes)
  const full = Math.round(part * BAR_CHARS)
  return [
    `[${'#'.repeat(full).padEnd(BAR_CHARS, '-')}]`,
    `${Math.floor(part * 100)}%`.padStart(4),
    `${approximately(bytes)} of ${approximately(totalBytes)}`,
  ]
}

function remaining(bytes: number, totalBytes: number, tookMs: number): string {
  const leftMs = bytes === 0 ? 0 : Math.max(0, (tookMs / bytes) * (totalBytes - bytes))
  return `${Math.ceil(leftMs / 1000)}s left`
}

function approximately(bytes: number): string {
  const unit = bytes >= 1024 ** 3 ? 1024 ** 3 : bytes >= 1024 ** 2 ? 1024 ** 2 : 1024
  return `${(bytes / unit).toFixed(1)}${size(unit).slice(1)}`
}
