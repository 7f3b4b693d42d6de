import { existsSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { loadConfig } from '../src/config/load.ts'
import { fileOf, sluice } from './commands/run.ts'
import { codeBlocks, DOCS, fileText, REPOSITORY } from './helpers/repository.ts'

/** Names in the documents must exist, and their examples must work. */
const { scripts } = JSON.parse(fileText('package.json')) as { scripts: Record<string, string> }

describe.each(['README.md', 'CONTRIBUTING.md', ...DOCS])('%s', (name) => {
  const text = fileText(name)

  it('names existing files, folders and npm scripts, and has no merge conflict markers', () => {
    for (const [, path] of text.matchAll(/`((?:src|bin|test|bench|config|docs)\/[\w./-]*)`/g))
      expect(existsSync(join(REPOSITORY, path!)), path).toBe(true)
    for (const [, script] of text.matchAll(/npm run ([a-z:]+)/g))
      expect(scripts, script).toHaveProperty(script!)
    expect(text).not.toMatch(/^(?:<{7}|>{7}|={7}$)/m)
  })

  it('shows configurations that load', async () => {
    writeFileSync(join(dirname(fileOf('')), 'keys.yaml'), '[]\n')
    for (const block of codeBlocks(text, 'yaml')) {
      const { config } = await loadConfig({ file: fileOf(block), env: {} })
      expect(config.routes.length).toBeGreaterThan(0)
    }
  })

  it('names existing commands and flags', async () => {
    for (const block of codeBlocks(text, 'sh')) {
      for (const [, command, rest] of block.matchAll(
        /^(?:node dist\/bin\/sluice\.js|sluice) (\w+(?: show| set| reset| top| create| list| revoke)?)(.*)$/gm,
      )) {
        const { stdout, code } = await sluice([...command!.split(' '), '--help'])
        expect(code, command).toBe(0)
        for (const [flag] of rest!.matchAll(/--[a-z-]+/g))
          expect(stdout, `${command} ${flag}`).toContain(flag)
      }
    }
  })
})
