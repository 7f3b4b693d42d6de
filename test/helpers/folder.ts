import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** Creates a folder, which is deleted after the run (build.ts). */
export const createFolder = (): string => mkdtempSync(join(tmpdir(), 'sluice-'))
