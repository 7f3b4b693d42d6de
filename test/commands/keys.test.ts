import { execFileSync } from 'node:child_process'
import { chmodSync, existsSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { createKeyText, hashOfKey, isMistyped, KEY_IN_TEXT } from '../../src/authenticate/key/key-text.ts'
import { createFolder } from '../helpers/folder.ts'
import { itEndsWrongUsage, sluice } from './run.ts'

/** Returns a folder with a configuration, and the function that runs `sluice keys` in it. */
function prepared(text?: string) {
  const folder = createFolder()
  const [config, file] = [join(folder, 'sluice.yaml'), join(folder, 'keys.yaml')]
  // Other values may be missing where the command runs.
  writeFileSync(
    config,
    'keys: { file: "${KEYS:-keys.yaml}" }\nplans: { free: {}, pro: {} }\nstore: { redis: { url: "${REDIS}" } }\n',
  )
  if (text !== undefined) writeFileSync(file, text, { mode: 0o600 })
  const keys = (args: readonly string[], stdin = '') => sluice(['keys', ...args, '-c', config], { stdin })
  const read = () => readFileSync(file, 'utf8')
  const create = async (...args: string[]) => (await keys(['create', ...args])).stdout.trim()
  return { folder, config, file, keys, read, create }
}
const short = (key: string) => hashOfKey(key).slice(0, 8)

describe('keys create', () => {
  it('prints a key once, and writes only its hash to a new file that others cannot read', async () => {
    const { keys, read, file } = prepared()
    const { code, stdout, stderr } = await keys([
      'create',
      'acme',
      '--plan',
      'pro',
      '--until',
      '2099-01-01T00:00:00Z',
    ])
    const key = stdout.trim()
    expect([code, isMistyped(key)]).toEqual([0, false])
    expect(key).toMatch(/^slk_[a-z2-7]{39}$/)
    expect(key).toMatch(KEY_IN_TEXT)
    expect(read()).toBe(
      `- { id: acme, sha256: "${hashOfKey(key)}", plan: pro, until: 2099-01-01T00:00:00.000Z }\n`,
    )
    expect(stderr).toBe(
      `Added the key ${short(key)} of acme, plan pro, until 2099-01-01T00:00:00.000Z to ${file}. This is the only time that it is shown.\n`,
    )
    expect(statSync(file).mode & 0o777).toBe(0o600)
    expect(existsSync(`${file}.lock`)).toBe(false)
  })

  it('keeps comments, other lines, the mode of the file and a link to it', async () => {
    const text = `# Customers\n\n- { id: old, sha256: "${hashOfKey('old')}" } # since 2020 }\n`
    const { folder, keys, file, read, create } = prepared(text)
    chmodSync(file, 0o640)
    const link = join(folder, 'link.yaml')
    symlinkSync('keys.yaml', link)
    const key = (await sluice(['keys', 'create', 'Zoë "x" \\ Ltd', '--file', link])).stdout.trim()
    expect(read()).toBe(`${text}- { id: "Zoë \\"x\\" \\\\ Ltd", sha256: "${hashOfKey(key)}" }\n`)
    expect([statSync(file).mode & 0o777, statSync(link).ino]).toEqual([0o640, statSync(file).ino])
    const second = await create('old', '--plan', 'pro')
    expect(read()).toContain(`- { id: old, sha256: "${hashOfKey('old')}", plan: pro } # since 2020 }\n`)
    expect(read()).toContain(`- { id: old, sha256: "${hashOfKey(second)}", plan: pro }\n`)
    const third = await create('old')
    expect(read()).toContain(`${hashOfKey(third)}", plan: pro }`)
    expect((await keys(['set', 'old', '--plan', 'none'])).stdout).toBe('The plan of old is now none.\n')
    expect(read()).toContain(`- { id: old, sha256: "${hashOfKey('old')}" } # since 2020 }\n`)
  })

  it('keeps the line breaks of Windows, and reads lists without keys', async () => {
    const text = `# Customers\r\n- { id: old, sha256: "${hashOfKey('old')}", plan: pro } # since 2020\r\n`
    const { keys, read, create, file } = prepared(text)
    const key = await create('acme')
    expect(read()).toBe(`${text}- { id: acme, sha256: "${hashOfKey(key)}" }\r\n`)
    await keys(['set', 'old', '--plan', 'free'])
    expect(read()).toContain('plan: free } # since 2020\r\n')
    await keys(['revoke', 'old'])
    await keys(['revoke', 'acme'])
    expect(read()).toBe('# Customers\r\n[]\r\n')
    for (const empty of ['[]\r\n', '[ ]\n', '[]']) {
      writeFileSync(file, empty)
      await create('acme')
      expect(read()).toMatch(/^- \{ id: acme, [^[]*$/)
    }
  })

  it('checks the plan against the configuration, also with --file', async () => {
    const { config, file } = prepared()
    const args = ['keys', 'create', 'acme', '--file', file, '--plan']
    const { code, stderr } = await sluice([...args, 'prox'], { env: { SLUICE_CONFIG: config } })
    expect([code, existsSync(file)]).toEqual([64, false])
    expect(stderr).toContain('The configuration has no plan "prox". Did you mean "pro"?\n')
    expect((await sluice([...args, 'pro'], { env: { SLUICE_CONFIG: config } })).code).toBe(0)
    // Without a configuration, only its form.
    expect((await sluice([...args, 'gold'])).code).toBe(0)
    expect((await sluice([...args, 'a plan'])).stderr).toContain('The name of a plan is of letters')
  })

  it('adds the hash of a key that the client already has, without printing the key', async () => {
    const { keys, read } = prepared()
    const key = 'the-key-of-another-gateway'
    const { code, stdout, stderr } = await keys(['create', 'acme', '--stdin'], `${key}\n`)
    expect([code, stdout, stderr.includes(key)]).toEqual([0, '', false])
    expect(read()).toContain(hashOfKey(key))
    const again = await keys(['create', 'globex', '--stdin'], key)
    expect([again.code, again.stderr]).toEqual([1, 'sluice: The key is already one of acme.\n'])
  })

  it.each([
    [
      '',
      'Standard input must be a key: 1 to 256 printable ASCII characters without blanks. Give a client with another one a new key.',
    ],
    [
      'globex-key-1',
      'The key has 12 characters. One of less than 20 can be found by its hash: give the client a new key, or add it with --allow-short.',
    ],
    [
      `two keys ${'k'.repeat(20)}`,
      'Standard input must be a key: 1 to 256 printable ASCII characters without blanks. Give a client with another one a new key.',
    ],
    [createKeyText().slice(0, -1), 'The checksum of the key is wrong: it was cut or mistyped.'],
  ])('refuses a text that is not a key: %s', async (stdin, message) => {
    const { keys, file } = prepared()
    const { code, stderr } = await keys(['create', 'acme', '--stdin'], stdin)
    expect([code, stderr]).toEqual([64, `sluice: ${message}\nSee "sluice keys create --help".\n`])
    expect(existsSync(file)).toBe(false)
  })

  it('adds a short key only with --allow-short, and revokes it without', async () => {
    const { keys, read } = prepared()
    const key = 'globex-key-1'
    expect((await keys(['create', 'globex', '--stdin', '--allow-short'], key)).code).toBe(0)
    expect(read()).toContain(hashOfKey(key))
    expect((await keys(['revoke', '--stdin'], key)).code).toBe(0)
    expect(read()).not.toContain(hashOfKey(key))
    const { code, stderr } = await keys(['create', 'globex', '--allow-short'])
    expect([code, stderr]).toEqual([
      64,
      'sluice: --allow-short needs --stdin.\nSee "sluice keys create --help".\n',
    ])
  })

  it.each([
    [['create', 'acme', 'a-key-of-acme'], 'A key that the client already has is read by --stdin.'],
    [['revoke', 'acme', '7f83b165'], 'Give only the id, with --key and the first digits of a key'],
    [['revoke', 'acme', '--stdin'], 'Give only the id, with --key and the first digits of a key'],
    [['revoke', 'acme', 'globex', '--all'], 'Give only the id, with --key and the first digits of a key'],
    [['list', 'acme', 'globex'], 'Give only the id.'],
    [['set', 'acme', 'pro', '--plan', 'pro'], 'Give only the id.'],
  ])('takes no further words, and changes nothing then: %j', async (args, message) => {
    const { keys, read } = prepared(`- { id: acme, sha256: "${'a'.repeat(64)}" }\n`)
    const before = read()
    const { code, stderr } = await keys(args)
    expect([code, stderr]).toEqual([64, expect.stringContaining(message)])
    expect(stderr).not.toContain('a-key-of-acme')
    expect(read()).toBe(before)
  })

  it('refuses a file that others may read or change, without a change', async () => {
    for (const mode of [0o644, 0o604, 0o660, 0o602]) {
      const { keys, file, read } = prepared('[]\n')
      chmodSync(file, mode)
      const { code, stdout, stderr } = await keys(['create', 'acme'])
      expect([code, stdout]).toEqual([1, ''])
      expect(stderr).toBe(
        `sluice: Others may read or change ${file} (mode ${mode.toString(8)}). Run: chmod g-w,o= ${file}\n`,
      )
      expect(read()).toBe('[]\n')
      expect(await keys(['list'])).toMatchObject({
        code: 0,
        stderr: `note: ${stderr.replace('sluice: ', '')}`,
      })
    }
  })

  it('refuses a folder, a device and a named pipe, and does not wait for the pipe', async () => {
    const { keys, folder } = prepared()
    const pipe = join(folder, 'pipe')
    execFileSync('mkfifo', [pipe])
    for (const file of [folder, '/dev/null', pipe])
      for (const args of [['create', 'acme'], ['list']]) {
        const { code, stdout, stderr } = await keys([...args, '--file', file])
        expect([code, stdout]).toEqual([1, ''])
        expect(stderr).toBe(`sluice: ${file} is not a regular file. Give the path of one.\n`)
      }
  })

  it('refuses a file with a mistake, or with an item in several lines, and names its place', async () => {
    const { keys, file, read } = prepared(`- id: acme\n  sha256: "${hashOfKey('a')}"\n`)
    const { code, stderr } = await keys(['create', 'acme'])
    expect(code).toBe(78)
    expect(stderr).toContain(`${file}:1:1: is not an item in one line`)
    writeFileSync(file, '- { id: acme, sha256: x }\n')
    expect((await keys(['create', 'acme'])).stderr).toContain(`${file}:1:23: [0].sha256: must be`)
    expect(read()).toBe('- { id: acme, sha256: x }\n')
  })

  it('does not lose a key if two commands run at a time', async () => {
    const { keys, file, read, create } = prepared()
    const created = await Promise.all(['acme', 'globex', 'initech'].map((id) => create(id)))
    for (const key of created) expect(read()).toContain(hashOfKey(key))
    writeFileSync(`${file}.lock`, '')
    const waiting = create('umbrella')
    setTimeout(() => rmSync(`${file}.lock`), 100)
    const waited = await waiting
    expect(read()).toContain(hashOfKey(waited))
    // A lock that stays, of a command that was killed.
    writeFileSync(`${file}.lock`, '')
    const { code, stderr } = await keys(['create', 'acme'])
    expect([code, stderr]).toEqual([
      1,
      `sluice: Another command changes the keys. If none runs, remove ${file}.lock.\n`,
    ])
  })
})

describe('keys list and keys revoke', () => {
  it('list and revoke the keys of a client by the first digits of their hashes', async () => {
    const { keys, read, file, create } = prepared()
    const [one, two, other] = [
      await create('acme'),
      await create('acme'),
      await create('globex', '--until', '1s'),
    ]
    const listed = await keys(['list', '--json'])
    expect(JSON.parse(listed.stdout)).toMatchObject({
      file,
      keys: [
        { client: 'acme', key: short(one), plan: null, until: null, expired: false },
        { client: 'acme', key: short(two) },
        { client: 'globex', key: short(other) },
      ],
    })
    const table = (await keys(['list', 'acme'])).stdout
    expect(table).toMatch(
      /^CLIENT +KEY +PLAN +UNTIL +STATE\nacme +\w{8} +- +- +valid\nacme +\w{8} +- +- +valid\n$/,
    )
    for (const key of [one, two, other]) expect(table + listed.stdout).not.toContain(key)
    const which = await keys(['revoke', 'acme'])
    expect([which.code, which.stderr]).toEqual([
      64,
      `sluice: Which key of acme? Give --key with one of ${short(one)}, ${short(two)}, or --all.\nSee "sluice keys revoke --help".\n`,
    ])
    const revoked = await keys(['revoke', 'acme', '--key', short(one)])
    expect(revoked.stdout).toBe(
      `Revoked ${short(one)} of acme. Gateways refuse it within a second of reading ${file}.\n`,
    )
    expect(read()).not.toContain(hashOfKey(one))
    // A key that a scanner found, of an unknown client.
    expect((await keys(['revoke', '--stdin'], two)).stdout).toContain(`Revoked ${short(two)} of acme.`)
    expect((await keys(['revoke', 'globex'])).code).toBe(0)
    expect(read()).toBe('[]\n')
    expect((await keys(['list'])).stdout).toBe(`${file} has no keys.\n`)
    await create('acme')
    await create('acme')
    expect((await keys(['revoke', 'acme', '--all'])).code).toBe(0)
    expect(read()).toBe('[]\n')
  })

  it('names the nearest client and plan', async () => {
    const { keys, create } = prepared()
    await create('acme')
    expect((await keys(['revoke', 'amce'])).stderr).toContain('Did you mean "acme"?')
    expect((await keys(['set', 'acme', '--plan', 'prox'])).stderr).toContain(
      'The configuration has no plan "prox". Did you mean "pro"?\n',
    )
    expect((await keys(['create', 'acme', '--plan', 'gold'])).stderr).toContain('It has: free, pro.\n')
  })
})

itEndsWrongUsage([
  [['keys'], 'Which command?'],
  [['keys', 'create', '--file', '/nowhere/keys.yaml'], 'Which client? Give its id.'],
  [
    ['keys', 'create', createKeyText(), '--file', '/nowhere/keys.yaml'],
    'The id is a key. Give the id of its client.',
  ],
  [
    ['keys', 'create', 'a\u0007', '--file', '/nowhere/keys.yaml'],
    'The id must be 1 to 255 printable characters.',
  ],
  [
    ['keys', 'create', 'ac\u200bme', '--file', '/nowhere/keys.yaml'],
    'The id has the character U+200B, which is not seen or looks like a blank; remove it.',
  ],
  [['keys', 'set', 'acme', '--file', '/nowhere/keys.yaml'], 'Which plan? Give --plan, or --plan none.'],
  [
    ['keys', 'create', 'acme', '--until', '12:30', '--file', '/nowhere/keys.yaml'],
    '--until must be an instant such as 2027-01-31T00:00:00Z, or a duration such as 30d.',
  ],
  [
    ['keys', 'create', 'acme', '--until', '2020-01-01T00:00:00Z', '--file', '/nowhere/keys.yaml'],
    '--until has passed.',
  ],
])
