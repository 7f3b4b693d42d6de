import { existsSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { DOCS, fileText, filesIn, REPOSITORY } from '../helpers/repository.ts'

/** Relative links and anchors of the documents must have a target. */
const documents = ['README.md', 'CONTRIBUTING.md', 'CHANGELOG.md', ...DOCS]

/** Returns the text without its code, in which brackets and `#` mean something else. */
const prose = (text: string): string =>
  text
    .replaceAll(/^ *```[\s\S]*?^ *```$/gm, '')
    .replaceAll(/`[^`\n]*`/g, (code) => code.replaceAll(/[[\]()<>]/g, ''))

/** Returns the anchors that GitHub gives to the headings, and those of HTML. */
function anchorsOf(text: string): ReadonlySet<string> {
  const anchors = new Set([...prose(text).matchAll(/<a (?:id|name)="([^"]+)"/g)].map(([, id]) => id!))
  for (const [, title] of prose(text).matchAll(/^#+ (.*)$/gm)) {
    const words = title!.replaceAll(/\]\([^)]*\)/g, '').toLowerCase()
    const slug = words.replaceAll(/[^\p{L}\p{N} _-]/gu, '').replaceAll(' ', '-')
    let unique = slug
    for (let i = 1; anchors.has(unique); i++) unique = `${slug}-${i}`
    anchors.add(unique)
  }
  return anchors
}

const LINK = /\]\(\s*([^)\s]+)[^)]*\)|^\[[^\]]+\]:\s*(\S+)|\b(?:href|src)="([^"]+)"/gm
const linksOf = (text: string): readonly string[] =>
  [...prose(text).matchAll(LINK)].map(([, inline, reference, html]) => inline ?? reference ?? html!)

/** Returns what is wrong with a link of a document; undefined if its target exists. */
function faultOf(link: string, document: string): string | undefined {
  if (/^[a-z][a-z+.-]*:/i.test(link)) return undefined
  const [path = '', anchor] = link.split('#', 2)
  const file =
    path === '' ? join(REPOSITORY, document) : join(REPOSITORY, document, '..', decodeURIComponent(path))
  if (!existsSync(file)) return `${link}: no such file`
  if (anchor === undefined) return undefined
  if (!statSync(file).isFile() || !file.endsWith('.md')) return `${link}: only .md files have anchors`
  return anchorsOf(readFileSync(file, 'utf8')).has(anchor) ? undefined : `${link}: no such heading`
}

describe('the links of documents', () => {
  it.each(documents)('every link of %s has a target', (document) => {
    const links = linksOf(fileText(document))
    expect(links.map((link) => faultOf(link, document)).filter(Boolean)).toEqual([])
  })

  it('a link without a target is found', () => {
    const text =
      '[a](none.md) [b](../README.md#none) ![c](none.png) <a href="none.html">d</a>\n[e]: none.md\n`[f](no)`\n'
    expect(linksOf(text).map((link) => faultOf(link, 'docs/x.md'))).toEqual([
      'none.md: no such file',
      '../README.md#none: no such heading',
      'none.png: no such file',
      'none.html: no such file',
      'none.md: no such file',
    ])
    expect(faultOf('../README.md#operate-it', 'docs/x.md')).toBeUndefined()
  })

  it('every page and heading that files of deploy/ and config/ name exists', () => {
    const named = ['deploy', 'config'].flatMap((folder) =>
      filesIn(folder, '').flatMap((file) =>
        statSync(join(REPOSITORY, file)).isFile()
          ? [...fileText(file).matchAll(/\bdocs\/[\w/-]+\.md(?:#[\w-]+|, ")?/g)].map(([name]) => ({
              file,
              name,
            }))
          : [],
      ),
    )
    expect(named.length).toBeGreaterThan(50)
    // A heading is named by its anchor, which can be compared.
    expect(named.filter(({ name }) => name.endsWith('"'))).toEqual([])
    expect(named.filter(({ name }) => faultOf(name, 'README.md') !== undefined)).toEqual([])
  })

  it('every page of docs/ has a link to it', () => {
    const targets = documents.flatMap((document) =>
      linksOf(fileText(document)).map((link) => join(document, '..', link.split('#')[0]!)),
    )
    for (const page of DOCS) expect(targets).toContain(page)
  })
})
