import { describe, expect, it } from 'vitest'
import { VERSION } from '../../src/observe/version.ts'
import { itEndsWrongUsage, sluice } from './run.ts'

describe('sluice', () => {
  it('shows help with examples, and its version', async () => {
    const help = await sluice(['--help'])
    expect(help).toMatchObject({ code: 0, stderr: '' })
    for (const command of ['start', 'check', 'health', 'explain', 'limits', 'replay', 'sandbox']) {
      expect(help.stdout).toContain(`sluice ${command}`)
    }
    for (const part of ['Examples:', 'Exit codes:']) expect(help.stdout).toContain(part)
    expect(await sluice(['--version'])).toEqual({ code: 0, stdout: `${VERSION}\n`, stderr: '' })
    const start = await sluice(['start', '--help'])
    const places = ['port', 'host', 'admin-port', 'admin-host', 'redis', 'store']
    for (const flag of [...places, 'config', 'workers', 'log-level', 'log-format']) {
      expect(start.stdout).toContain(`--${flag} `)
    }
  })

  itEndsWrongUsage([
    [[], 'Which command? One of start, check, health, explain, limits, replay, sandbox.'],
    [['chek'], 'Did you mean check?'],
    [['start'], 'Which configuration? Give --config FILE, or set SLUICE_CONFIG.'],
    [['check', '--confg', 'x'], 'Unknown argument: confg'],
    [['check', 'sluice.yaml'], 'Unknown argument: ***. Give values by flags, such as --config FILE.'],
    [
      ['check', 'redis://u:hunter2@h', 'x'],
      'Unknown arguments: ***, ***. Give values by flags, such as --config FILE.',
    ],
    [['check', '--port'], 'Not enough arguments following: port'],
    [
      ['start', '--store', 'memory', '--redis', 'redis://r'],
      'Arguments store and redis are mutually exclusive',
    ],
    [['sandbox', '--limit', 'few'], '--limit must be a whole number from 0 to 9007199254740991.'],
    [['start', '--workers', '0'], '--workers must be a whole number from 1 to 256, or auto.'],
    [['worker'], 'Workers are started by "sluice start --workers N".'],
    [['sandbox', '--port', '70000'], '--port must be a whole number from 0 to 65535.'],
  ])
})
