import { readFileSync } from 'node:fs'

const read = (file: string): string => readFileSync(new URL(file, import.meta.url), 'utf8')
const LAYOUT = read('layout.lua')

export const CHARGE_SCRIPT = LAYOUT + read('charge-one.lua') + read('charge.lua')
export const MERGE_SCRIPT = LAYOUT + read('merge.lua')
export const SETTLE_SCRIPT = LAYOUT + read('settle.lua')
export const RENEW_SCRIPT = LAYOUT + read('renew.lua')
export const REGISTER_SCRIPT = read('register.lua')
