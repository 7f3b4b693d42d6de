import { readdirSync, readFileSync } from 'node:fs'
import type { AdminResponse } from './access.ts'

const FOLDER = new URL('console/', import.meta.url)

const TYPES: Readonly<Record<string, string>> = {
  html: 'text/html; charset=utf-8',
  css: 'text/css; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  svg: 'image/svg+xml',
}

/** The page may load what is here and ask what is here, and may be framed nowhere. */
const HEADERS = {
  'Content-Security-Policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'no-referrer',
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Resource-Policy': 'same-origin',
} as const

/** Reads the files of the console; returns them by their path. They hold no data, so that all may load them. */
export function readPages(): ReadonlyMap<string, AdminResponse> {
  const pages = new Map<string, AdminResponse>()
  for (const name of readdirSync(FOLDER)) {
    const type = TYPES[name.slice(name.lastIndexOf('.') + 1)]
    if (type === undefined) continue
    const body = readFileSync(new URL(name, FOLDER), 'utf8')
    const path = name === 'index.html' ? '/' : `/console/${name}`
    pages.set(path, { status: 200, body, headers: { ...HEADERS, 'Content-Type': type } })
  }
  return pages
}
