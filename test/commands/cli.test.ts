import { execFileSync } from 'node:child_process'
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { jsonSchema } from '../../src/config/schema.ts'
import { VERSION } from '../../src/runtime/package.ts'
import { fileOf, itEndsWrongUsage, sluice } from './run.ts'
import { createFolder } from '../helpers/folder.ts'

const UNKNOWN = 'Unknown command or argument.'

/** Returns the commit of the checkout, as Git reads it. */
const headCommit = (): string => execFileSync('git', ['rev-parse', 'HEAD'], { encoding: 'utf8' }).trim()

describe('sluice', () => {
  it('prints help with examples, and its version', async () => {
    const help = await sluice(['--help'])
    expect(help).toMatchObject({ code: 0, stderr: '' })
    for (const command of [
      'start',
      'init',
      'check',
      'health',
      'explain',
      'limits',
      'replay',
      'sandbox',
      'schema',
      'completion',
    ]) {
      expect(help.stdout).toContain(`sluice ${command}`)
    }
    for (const part of ['Examples:', 'Exit codes:']) expect(help.stdout).toContain(part)
    expect(await sluice(['--version'])).toEqual({
      code: 0,
      stdout: `${VERSION} (commit ${headCommit()})\n`,
      stderr: '',
    })
    const start = await sluice(['start', '--help'])
    const places = ['port', 'host', 'admin-port', 'admin-host', 'redis', 'store']
    for (const flag of [...places, 'config', 'workers', 'log-level', 'log-format']) {
      expect(start.stdout).toContain(`--${flag} `)
    }
  })

  itEndsWrongUsage([
    [['--json=no'], 'Which command?'],
    [['run'], UNKNOWN],
    [['redis://u:hunter2@h'], UNKNOWN],
    [['chek'], 'Unknown command; did you mean check?'],
    [['limits'], 'Which command?'],
    [['limits', 'redis://u:hunter2@h'], UNKNOWN],
    [['limits', 'shw'], 'Unknown command; did you mean show?'],
    [
      ['start'],
      'Which configuration? Give --config FILE, set SLUICE_CONFIG, or name it sluice.yaml; "sluice init" writes one.',
    ],
    [['check', '--confg', 'x'], 'Unknown flag --confg; did you mean --config?'],
    [['check', 'sluice.yaml'], UNKNOWN],
    [['check', 'redis://u:hunter2@h', 'x'], UNKNOWN],
    [['check', '--admin-prot=80'], 'Unknown flag --admin-prot; did you mean --admin-port?'],
    [['check', '--swordfish', 'x'], 'Unknown flag --swordfish.'],
    [['check', '-p', '80'], 'Unknown flag -p.'],
    [['check', '--port'], 'The flag "port" needs a value.'],
    [['check', '-c'], 'The flag "c" needs a value.'],
    [['start', '--config='], 'Give --config a value.'],
    [['help', 'nope'], UNKNOWN],
    [['help', 'limits', 'shw'], UNKNOWN],
    [
      ['start', '--store', 'memory', '--redis', 'redis://r'],
      '--store cannot be combined with --redis; remove one.',
    ],
    [
      ['limits', 'set', 'acme', 'requests=5', '--until', '2h', '--permanent'],
      '--permanent cannot be combined with --until; remove one.',
    ],
    [
      ['init', '--for', 'hunter2'],
      'Invalid values:\n  --for must be one of "open-banking", "api", "api-keys".',
    ],
    [['start', '--store', 'redis://:hunter2@r'], 'Invalid values:\n  --store must be one of "memory".'],
    [
      ['check', '--log-level', 'hunter2', '--log-format', 'x'],
      `Invalid values:
  --log-level must be one of "fatal", "error", "warn", "info", "debug", "trace", "silent".
  --log-format must be one of "json", "pretty".`,
    ],
    [['completion', 'tcsh'], 'Which shell? One of bash, zsh, fish.'],
    [['sandbox', '--limit', 'few'], '--limit must be a whole number from 0 to 9007199254740991.'],
    [['start', '--workers', '0'], '--workers must be a whole number from 1 to 256.'],
    [['worker'], 'Workers are started by "start --workers N".'],
    [['sandbox', '--port', '70000'], '--port must be a whole number from 0 to 65535.'],
  ])

  it('suggests --config for a file that is given without it', async () => {
    const file = fileOf('store: memory')
    for (const command of ['check', 'start'])
      expect((await sluice([command, file])).stderr).toMatch(`${UNKNOWN} Did you mean --config ${file}?\n`)
    expect((await sluice(['check', 'hunter2.yaml'])).stderr).toMatch(
      /^sluice: Unknown command or argument\.\n/,
    )
  })

  it('prints a failure only as JSON with --json', async () => {
    const failure = async (...args: string[]) => {
      const { code, stdout, stderr } = await sluice([...args, '--json'])
      expect(stderr).toBe('')
      const printed = JSON.parse(stdout) as { error: { exit: number; message: string } }
      expect(printed.error.exit).toBe(code)
      return printed
    }
    const file = fileOf('store: memory\nlisten: { port: http }\n')
    const wrong = await failure('check', '--config', file, '--admin-port', 'x')
    expect(wrong).toMatchObject({
      error: { exit: 78, message: expect.stringContaining(`${file}:2:17: listen.port: must be`) as string },
      problems: [
        { flag: '--admin-port', path: '', message: 'must be a port from 0 to 65535' },
        { file, line: 2, column: 17, path: 'listen.port', message: 'must be a port from 0 to 65535' },
        { file, line: 1, column: 1, path: 'routes' },
      ].toSorted((a, b) => (a.line ?? 0) - (b.line ?? 0)),
    })
    expect(await failure('explain', '/', '--config', '/nowhere/x.yaml', '--offline')).toMatchObject({
      error: { exit: 78 },
      problems: [{ file: '/nowhere/x.yaml', message: 'does not exist' }],
    })
    expect(await failure('limits', 'reset', '')).toEqual({
      error: {
        exit: 64,
        message: 'Which caller? Give a client id, or a caller such as ip:192.0.2.7.',
      },
    })
    const unanswered = await failure('limits', 'show', 'acme', '--admin', 'http://127.0.0.1:1')
    expect(unanswered.error).toMatchObject({
      exit: 1,
      message: expect.stringContaining('no response from') as string,
    })
  })

  it('uses ./sluice.yaml by default, and reports that on stderr', async () => {
    const before = process.cwd()
    const folder = createFolder()
    writeFileSync(join(folder, 'sluice.yaml'), 'admin: { port: 1 }\nroutes: nothing\n')
    process.chdir(folder)
    onTestFinished(() => {
      process.chdir(before)
      rmSync(folder, { recursive: true })
    })
    for (const command of [['check'], ['replay', '-'], ['explain', '/x', '--offline']]) {
      const { code, stderr } = await sluice(command)
      expect(code).toBe(78)
      expect(stderr).toMatch(/^Using \.\/sluice\.yaml\.\nsluice\.yaml:/)
    }
    for (const command of [
      ['health'],
      ['limits', 'show', 'acme'],
      ['limits', 'top'],
      ['limits', 'overrides'],
    ]) {
      const { code, stderr } = await sluice(command)
      expect(code).toBe(1)
      expect(stderr).toMatch(
        /^Using \.\/sluice\.yaml\.\nsluice: no response from http:\/\/127\.0\.0\.1:1: ECONNREFUSED/,
      )
    }
    const { stderr } = await sluice(['explain', '/x'])
    expect(stderr.match(/Using/g)).toHaveLength(1)
  })

  it('prints the help without a command, and for the word help', async () => {
    const help = await sluice(['--help'])
    for (const words of [[], ['help'], ['-h']]) expect(await sluice(words)).toEqual(help)
    expect(await sluice(['help', 'limits', 'set'])).toEqual(await sluice(['limits', 'set', '--help']))
    for (const words of [['version'], ['-v'], ['-V']])
      expect(await sluice(words)).toMatchObject({ code: 0, stdout: `${VERSION} (commit ${headCommit()})\n` })
  })

  it('accepts -c in place of --config', async () => {
    for (const command of [['check'], ['explain', '/', '--offline'], ['replay', '-']])
      expect(await sluice([...command, '-c', '/nowhere/x.yaml'])).toMatchObject({
        code: 78,
        stderr: '/nowhere/x.yaml: does not exist\n',
      })
    expect((await sluice(['check', '-c/nowhere/x.yaml'])).stderr).toBe('/nowhere/x.yaml: does not exist\n')
  })

  it('lists the values of a flag in the help, and they are those of the schema', async () => {
    const { properties } = jsonSchema() as unknown as {
      properties: { log: { properties: Record<string, { anyOf: readonly { enum: readonly string[] }[] }> } }
    }
    const { stdout } = await sluice(['start', '--help'])
    for (const flag of ['level', 'format']) {
      const values = properties.log.properties[flag]!.anyOf[0]!.enum.map((value) => `"${value}"`).join(', ')
      expect(stdout.replaceAll(/\s+/g, ' ')).toContain(`[choices: ${values}]`)
    }
  })

  it('completes commands, subcommands, flags and their values', async () => {
    const completed = async (...words: string[]) =>
      (await sluice(['--get-yargs-completions', 'sluice', ...words])).stdout.trim().split('\n')
    onTestFinished(() => void vi.unstubAllEnvs())
    vi.stubEnv('SHELL', '/bin/bash').stubEnv('ZSH_NAME', undefined)
    expect(await completed('ch')).toContain('check')
    expect(await completed('comp')).toContain('completion')
    expect(await completed('')).not.toContain('worker')
    expect(await completed('limits', '')).toEqual(['show', 'set', 'reset', 'overrides', 'top'])
    expect(await completed('check', '--c')).toEqual(expect.arrayContaining(['--config', '--connect']))
    expect(await completed('init', '--for', '')).toEqual(['open-banking', 'api', 'api-keys'])
    expect(await completed('check', '--log-format', 'p')).toEqual(['pretty'])
  })

  it('leaves the files that a flag names to the shell', () => {
    const completedBy = (flag: string) =>
      execFileSync('bash', [
        '-c',
        `sluice() { echo --port; }; source config/completion/sluice.bash
         COMP_WORDS=(sluice check ${flag} ''); COMP_CWORD=3; COMPREPLY=(); _sluice; printf '%s' "\${COMPREPLY[*]}"`,
      ]).toString()
    expect(completedBy('--connect')).toBe('--port')
    for (const flag of ['--config', '-c', '--output', '--against']) expect(completedBy(flag)).toBe('')
  })

  it('completes the shells of completion, and leaves the logs of replay to the shell', () => {
    const completedBy = (command: string, word: string) =>
      execFileSync('bash', [
        '-c',
        `sluice() { echo --port; }; source config/completion/sluice.bash
         COMP_WORDS=(sluice ${command} '${word}'); COMP_CWORD=2; COMPREPLY=(); _sluice; printf '%s' "\${COMPREPLY[*]}"`,
      ]).toString()
    expect(completedBy('completion', '')).toBe('bash zsh fish')
    expect(completedBy('completion', 'z')).toBe('zsh')
    expect(completedBy('replay', '')).toBe('')
    expect(completedBy('replay', '--')).toBe('--port')
    expect(completedBy('check', '')).toBe('--port')
  })

  it('prints the completion script of a shell, and the help for it', async () => {
    const script = (shell: string) => readFileSync(`config/completion/sluice.${shell}`, 'utf8')
    for (const shell of ['bash', 'zsh', 'fish']) {
      const printed = { code: 0, stdout: script(shell), stderr: '' }
      expect(await sluice(['completion', shell])).toEqual(printed)
      expect(await sluice(['completion'], { env: { SHELL: `/usr/bin/${shell}` } })).toEqual(printed)
    }
    expect((await sluice(['completion', '--help'])).stdout).toContain('sluice completion [bash | zsh | fish]')
  })
})
