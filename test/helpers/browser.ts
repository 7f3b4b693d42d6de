import { accessSync, constants } from 'node:fs'
import { delimiter, join } from 'node:path'
import { type Browser, chromium } from 'playwright-core'
import { closeLater } from './closing.ts'

const hoursToNoon = 12 - new Date().getUTCHours()
/**
 * The time zone of the browser, in which it is about noon: near midnight, the console would also show dates.
 * The names of these zones have inverted signs.
 */
export const NOON_ZONE = `Etc/GMT${hoursToNoon > 0 ? '-' : '+'}${Math.abs(hoursToNoon)}`

/** Starts the Chromium that is on PATH, if possible the one without windows, which takes two thirds of the processor time. */
export async function startBrowser(): Promise<Browser> {
  const executablePath = onPath('chromium-headless-shell') ?? onPath('chromium')
  if (executablePath === undefined) throw new Error('chromium is not on PATH; get it with: npm run setup')
  const browser = await chromium.launch({
    executablePath,
    env: { ...process.env, TZ: NOON_ZONE },
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
