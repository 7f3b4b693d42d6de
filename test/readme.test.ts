import { spawnSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { loadConfig } from '../src/config/load.ts'
import { createFolder } from './helpers/folder.ts'

/** Names in the documents must exist, and their examples must work. */
const root = fileURLToPath(new URL('..', import.meta.url))
const documents = [
  'README.md',
  'CONTRIBUTING.md',
  ...readdirSync(join(root, 'docs'), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.md'))
    .map((name) => `docs/${name}`),
]
const { scripts } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
  scripts: Record<string, string>
}
const blocks = (text: string, language: string): string[] =>
  [...text.matchAll(new RegExp(`^\`\`\`${language}\\n([\\s\\S]*?)^\`\`\``, 'gm'))].map(([, block]) => block!)

describe.each(documents)('%s', (name) => {
  const text = readFileSync(join(root, name), 'utf8')

  it('names existing files and folders', () => {
    for (const [, path] of text.matchAll(/`((?:src|bin|test|bench|config|docs)\/[\w./-]*)`/g))
      expect(existsSync(join(root, path!)), path).toBe(true)
  })

  it('has no merge conflict markers', () => {
    expect(text).not.toMatch(/^(?:<{7}|>{7}|={7}$)/m)
  })

  it('calls existing npm scripts', () => {
    for (const [, script] of text.matchAll(/npm run ([a-z:]+)/g))
      expect(scripts, script).toHaveProperty(script!)
  })

  it('shows configurations that load', async () => {
    for (const block of blocks(text, 'yaml')) {
      const folder = createFolder()
      const file = join(folder, 'sluice.yaml')
      writeFileSync(file, block)
      const { config } = await loadConfig({ file, env: {} }).finally(() =>
        rmSync(folder, { recursive: true }),
      )
      expect(config.routes.length).toBeGreaterThan(0)
    }
  })

  it('names existing commands and flags', () => {
    for (const block of blocks(text, 'sh')) {
      for (const [, command, rest] of block.matchAll(
        /^(?:node dist\/bin\/sluice\.js|sluice) (\w+(?: show| set| reset| top)?)(.*)$/gm,
      )) {
        const { stdout, status } = spawnSync(
          process.execPath,
          ['dist/bin/sluice.js', ...command!.split(' '), '--help'],
          {
            cwd: root,
            encoding: 'utf8',
          },
        )
        expect(status, command).toBe(0)
        for (const [flag] of rest!.matchAll(/--[a-z-]+/g))
          expect(stdout, `${command} ${flag}`).toContain(flag)
      }
    }
  })
})
