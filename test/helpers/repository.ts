import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

/** The folder of the repository. */
export const REPOSITORY = join(import.meta.dirname, '../..')

/** Returns the text of a file of the repository. */
export const fileText = (path: string): string => readFileSync(join(REPOSITORY, path), 'utf8')

/** Returns the paths of all files in a folder of the repository that end so. */
export const filesIn = (folder: string, ending: string): readonly string[] =>
  readdirSync(join(REPOSITORY, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith(ending))
    .map((name) => `${folder}/${name}`)

/** The paths of the pages of docs/. */
export const DOCS = filesIn('docs', '.md')

/** Returns the code blocks of a language, without their indentation. */
export const codeBlocks = (text: string, language: string): readonly string[] =>
  [...text.matchAll(new RegExp(`^( *)\`\`\`${language}\\n([\\s\\S]*?)^ *\`\`\``, 'gm'))].map(
    ([, indent, block]) => block!.replaceAll(new RegExp(`^${indent}`, 'gm'), ''),
  )
