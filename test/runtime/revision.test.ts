import { execFileSync } from 'node:child_process'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { buildRevision } from '../helpers/build.ts'
import { createFolder } from '../helpers/folder.ts'

it('a build names its commit: that of Git, with a mark for uncommitted changes, or of the variable REVISION', () => {
  const cwd = createFolder()
  const git = (...args: string[]) =>
    execFileSync('git', ['-c', 'user.name=a', '-c', 'user.email=a@example.com', ...args], {
      cwd,
      encoding: 'utf8',
    }).trim()
  function built(env: NodeJS.ProcessEnv = {}): string {
    execFileSync('sh', ['-c', buildRevision()], { cwd, env: { PATH: process.env['PATH'], ...env } })
    return readFileSync(join(cwd, 'dist/revision'), 'utf8')
  }
  mkdirSync(join(cwd, 'dist'))
  expect(built()).toBe('unknown\n')
  writeFileSync(join(cwd, '.gitignore'), 'dist\n')
  git('init', '--quiet')
  git('add', '.')
  git('commit', '--quiet', '--message', 'Begin')
  // A tag must not replace the commit.
  git('tag', 'v1.0.0')
  const commit = git('rev-parse', 'HEAD')
  expect(built()).toBe(`${commit}\n`)
  writeFileSync(join(cwd, '.gitignore'), 'dist\n*.log\n')
  expect(built()).toBe(`${commit}-dirty\n`)
  expect(built({ REVISION: 'abc1234' })).toBe('abc1234\n')
})
