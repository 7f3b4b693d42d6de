import { spawnSync } from 'node:child_process'
import { accessSync, constants, cpSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { parseDocument } from 'yaml'
import { createFolder } from '../helpers/folder.ts'
import { fileText, filesIn, REPOSITORY } from '../helpers/repository.ts'

const { scripts, version } = JSON.parse(fileText('package.json')) as {
  scripts: Record<string, string>
  version: string
}
const files = filesIn('.github', '.yml')

function parsed(path: string): unknown {
  const document = parseDocument(fileText(path))
  expect([...document.errors, ...document.warnings], path).toEqual([])
  return document.toJS()
}

interface Step {
  readonly run?: string
  readonly uses?: string
}
interface Job {
  readonly permissions?: Readonly<Record<string, string>>
  readonly steps?: readonly Step[]
  readonly uses?: string
  readonly needs?: string | readonly string[]
}
const workflows = files
  .filter((path) => path.includes('/workflows/'))
  .map((path) => [path, (parsed(path) as { jobs: Record<string, Job> }).jobs] as const)

describe('.github/', () => {
  it('.github/ has YAML that parses', () => {
    expect(files).toHaveLength(6)
    for (const path of files) expect(parsed(path), path).toBeTypeOf('object')
  })

  it.each(workflows)('%s runs existing scripts, one command a step', (_, jobs) => {
    const steps = Object.values(jobs).flatMap(({ steps = [] }) => steps)
    const commands = steps.flatMap(({ run = [] }) => run)
    expect(commands.length).toBeGreaterThan(2)
    for (const command of commands) {
      expect(command).toMatch(/^(?:npm ci|npm test|npm run [\w:]+|scripts\/[\w-]+\.sh(?: "\$\w+")?)$/)
      const [program = '', , script] = command.split(' ')
      if (script !== undefined && program === 'npm') expect(scripts).toHaveProperty([script])
      if (program !== 'npm') accessSync(join(REPOSITORY, program), constants.X_OK)
    }
  })

  it.each(workflows)('%s needs existing jobs and calls existing workflows', (_, jobs) => {
    for (const { needs = [], uses } of Object.values(jobs)) {
      for (const job of [needs].flat()) expect(jobs).toHaveProperty(job)
      if (uses !== undefined) fileText(uses)
    }
  })
})

it('the job that may publish the package runs nothing but the command for it', () => {
  const [, jobs] = workflows.find(([path]) => path.endsWith('release.yml'))!
  const publishing = Object.entries(jobs).filter(
    ([, { permissions }]) => permissions?.['id-token'] === 'write',
  )
  expect(publishing.map(([name]) => name)).toEqual(['package', 'image'])
  const commands = publishing.flatMap(([, { steps = [] }]) => steps.flatMap(({ run = [] }) => run))
  expect(commands).toEqual(['scripts/publish.sh', 'scripts/sign-image.sh'])
  expect(fileText('scripts/publish.sh')).not.toMatch(/npm (?:ci|install|run|pack)/)
  expect(fileText('scripts/pack.sh')).toContain('npm ci --ignore-scripts\n')
  expect(fileText('Dockerfile')).toContain('RUN npm ci --ignore-scripts\n')
})

describe('scripts/', () => {
  const env = { ...process.env, GITHUB_REPOSITORY: '', GITHUB_SERVER_URL: 'https://git.example' }
  const scriptIn = (folder: string, repository: string, name: string, ...args: string[]) => {
    const { status, stdout, stderr } = spawnSync(join(folder, 'scripts', name), args, {
      encoding: 'utf8',
      env: { ...env, GITHUB_REPOSITORY: repository },
    })
    return { status, stdout, stderr }
  }
  const script = (name: string, ...args: string[]) => scriptIn(REPOSITORY, '', name, ...args)

  it('prints the notes of one version', () => {
    const { status, stdout } = script('release-notes.sh', '0.1.0')
    expect(status).toBe(0)
    expect(stdout).toMatch(/^The state of .*\n\n### Added\n\n- /)
    expect(stdout).not.toMatch(/^## /m)
    expect(script('release-notes.sh', '0.1')).toEqual({
      status: 1,
      stdout: '',
      stderr: 'CHANGELOG.md has no notes under "## [0.1]"; write them.\n',
    })
  })

  it('accepts only the tag of the version, in the repository of package.json', () => {
    expect(script('check-release.sh', 'v0.0.9')).toEqual({
      status: 1,
      stdout: '',
      stderr: `The tag v0.0.9 is not the version of package.json, which is ${version}: change one of the two.\n`,
    })
    const folder = createFolder()
    onTestFinished(() => rmSync(folder, { recursive: true }))
    const alerts = ['config/prometheus/alerts.yaml', 'test/observe/alerts.test.yaml']
    for (const name of ['scripts', 'package.json', 'CHANGELOG.md', ...alerts])
      cpSync(join(REPOSITORY, name), join(folder, name), { recursive: true })
    const check = (repository: string) => scriptIn(folder, repository, 'check-release.sh', `v${version}`)
    const set = (url: string) => scriptIn(folder, '', 'set-repository.sh', url)

    expect(set('https://repository.invalid/sluice')).toMatchObject({ status: 0 })
    expect(readFileSync(join(folder, 'package.json'), 'utf8')).toBe(fileText('package.json'))
    expect(check('')).toMatchObject({
      status: 1,
      stderr: 'package.json has no address of the repository: run scripts/set-repository.sh, and commit.\n',
    })

    expect(set('https://git.example/me/sluice')).toMatchObject({ status: 0 })
    expect(JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))).toMatchObject({
      repository: { type: 'git', url: 'git+https://git.example/me/sluice.git' },
      homepage: 'https://git.example/me/sluice#readme',
      bugs: { url: 'https://git.example/me/sluice/issues' },
    })
    for (const name of alerts) {
      const text = readFileSync(join(folder, name), 'utf8')
      expect(text).toContain(
        'runbook_url: https://git.example/me/sluice/blob/main/docs/runbook.md#sluiceerrors',
      )
      expect(text).not.toContain('repository.invalid')
    }
    for (const repository of ['', 'me/sluice'])
      expect(check(repository)).toEqual({ status: 0, stdout: '', stderr: '' })
    expect(check('you/sluice')).toMatchObject({
      status: 1,
      stderr:
        'package.json has the repository git+https://git.example/me/sluice.git, which is not this one: run scripts/set-repository.sh, and commit.\n',
    })
  })
})
