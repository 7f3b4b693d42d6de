import { renameSync, rmSync, symlinkSync, truncateSync, utimesSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { createWatch, MAX_CHANGING } from '../../src/commands/watch.ts'
import { loadConfig } from '../../src/config/load.ts'
import { createFolder } from '../helpers/folder.ts'
import { TOKENS, yaml } from '../helpers/gateway.ts'
import { makeCertificate } from '../helpers/self-signed.ts'

const folder = createFolder()
const file = join(folder, 'sluice.yaml')
const secret = join(folder, 'secret')
const [certFile, keyFile] = [join(folder, 'cert.pem'), join(folder, 'key.pem')]
/** The key set of the tests’ tokens. */
const jwksFile = TOKENS.jwks
const { cert, key } = makeCertificate('gateway')

/** Writes and loads a file that names others, and watches what was read. */
async function watched() {
  for (const name of [file, secret, certFile, keyFile]) rmSync(name, { force: true })
  writeFileSync(secret, 'a-secret-of-the-test')
  writeFileSync(certFile, cert)
  writeFileSync(keyFile, key)
  const tls = { tls: { cert: certFile, key: keyFile } }
  writeFileSync(
    file,
    yaml({ data: 'http://127.0.0.1:1', listen: tls, admin: { port: 0, token: `file:${secret}` } }),
  )
  let changes = 0
  const watch = createWatch(() => void changes++)
  const read = async () => watch.set((await loadConfig({ file, env: {} })).files)
  await read()
  /** Polls, and returns how often it has found a change in all. */
  const poll = async () => {
    await watch.poll()
    return changes
  }
  return { poll, read }
}

const touch = (name: string) => utimesSync(name, 1, 1)
const replace = (name: string) => {
  writeFileSync(`${name}.new`, 'x')
  renameSync(`${name}.new`, name)
}

it('finds no change after a start and a reload if nothing has changed since the files were read', async () => {
  const { poll, read } = await watched()
  for (let i = 0; i < 3; i++) expect(await poll()).toBe(0)
  touch(secret)
  await read()
  for (let i = 0; i < 3; i++) expect(await poll()).toBe(0)
})

it.each([
  ['the file', file],
  ['a secret', secret],
  ['a certificate', certFile],
  ['the key of a certificate', keyFile],
  ['a key set', jwksFile],
])('finds a change of %s after it was read, at the second poll, once', async (_, name) => {
  const { poll } = await watched()
  touch(name)
  expect([await poll(), await poll(), await poll(), await poll()]).toEqual([0, 1, 1, 1])
})

it.each<[string, () => void]>([
  ['is replaced by an editor, which renames another file', () => replace(file)],
  [
    'becomes another target of a symbolic link, like that of a ConfigMap',
    () => {
      rmSync(file)
      symlinkSync(keyFile, file)
    },
  ],
  ['is removed', () => rmSync(file)],
])('finds that the file %s', async (_, change) => {
  const { poll } = await watched()
  expect([await poll(), await poll()]).toEqual([0, 0])
  change()
  expect([await poll(), await poll(), await poll()]).toEqual([0, 1, 1])
})

it('waits until no file has changed between two polls, also another than the one that was first', async () => {
  const { poll } = await watched()
  await poll()
  truncateSync(file)
  for (let i = 1; i <= 5; i++) {
    expect(await poll()).toBe(0)
    writeFileSync(file, 'x'.repeat(i))
  }
  expect(await poll()).toBe(0)
  replace(certFile)
  expect(await poll()).toBe(0)
  replace(keyFile)
  expect([await poll(), await poll(), await poll()]).toEqual([0, 1, 1])
})

it(`reads files that go on changing after ${MAX_CHANGING} polls`, async () => {
  const { poll } = await watched()
  await poll()
  await poll()
  const found: number[] = []
  for (let i = 1; i <= 2 * MAX_CHANGING; i++) {
    writeFileSync(secret, 'x'.repeat(i))
    found.push(await poll())
  }
  expect(found.indexOf(1)).toBe(MAX_CHANGING - 1)
  expect(found.indexOf(2)).toBe(2 * MAX_CHANGING - 1)
})
