import { accessSync, constants } from 'node:fs'
import { delimiter, join } from 'node:path'
import { type Browser, chromium } from 'playwright-core'
import { closeLater } from './closing.ts'

/** A time zone in which it is about noon: the console shows the dates of instants before midnight. */
export const NOON_ZONE = zoneAhead(12 - new Date().getUTCHours())

/** Returns a time zone so many hours ahead of UTC; the signs of these names are inverted. */
function zoneAhead(hours: number): string {
  return `Etc/GMT${hours > 0 ? '-' : '+'}${Math.abs(hours)}`
}

/** Starts the Chromium that is on PATH, if possible the one without windows, which takes two thirds of the processor time. */
export async function startBrowser(): Promise<Browser> {
  const executablePath = onPath('chromium-headless-shell') ?? onPath('chromium')
  if (executablePath === undefined) throw new Error('chromium is not on PATH; get it with: npm run setup')
  const browser = await chromium.launch({
    executablePath,
    args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--no-first-run'],
  })
  closeLater(() => browser.close())
  return browser
}

function onPath(program: string): string | undefined {
  const folders = (process.env['PATH'] ?? '').split(delimiter)
  return folders.map((folder) => join(folder, program)).find(isExecutable)
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK)
    return true
  } catch {
    return false
  }
}
