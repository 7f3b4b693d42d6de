import { ConfigError } from '../yaml/issue.ts'
import { commentOf, isBlankLine, type KeyItem, readKeyLine, writeKeyLine } from './key-lines.ts'

/** A line of the keys' file; one without an item is a comment, blank, or the empty list. */
interface Line {
  readonly text: string
  readonly item?: KeyItem
}

/** The text of a keys' file, with one line for each item. Changes keep the other lines. */
export class KeyText {
  readonly #lines: readonly Line[]
  /** The line break of the file. */
  readonly #end: string

  private constructor(lines: readonly Line[], end: string) {
    this.#lines = lines
    this.#end = end
  }

  /** Throws a `ConfigError` if an item is not written in one line. */
  static read(text: string, file: string): KeyText {
    const end = /\r?\n/.exec(text)?.[0] ?? '\n'
    const lines = text === '' ? [] : text.replace(/\r?\n$/, '').split(/\r?\n/)
    return new KeyText(
      lines.flatMap((text, i): Line[] => {
        if (isBlankLine(text)) return [{ text }]
        if (/^\[ *\] *$/.test(text)) return []
        const item = readKeyLine(text)
        if (item !== undefined) return [{ text, item }]
        const message =
          'is not an item in one line, such as - { id: acme, sha256: "HASH" }; write it so, or change it yourself'
        throw new ConfigError([{ where: `${file}:${i + 1}:1`, path: '', message }])
      }),
      end,
    )
  }

  get items(): readonly KeyItem[] {
    return this.#lines.flatMap(({ item }) => item ?? [])
  }

  ofClient(client: string): readonly KeyItem[] {
    return this.items.filter((item) => item.client === client)
  }

  add(item: KeyItem): KeyText {
    return this.#with([...this.#lines, { text: writeKeyLine(item), item }])
  }

  remove(hashes: ReadonlySet<string>): KeyText {
    return this.#with(this.#lines.filter(({ item }) => item === undefined || !hashes.has(item.sha256)))
  }

  /** Sets the plan of all keys of a client; removes it if it is undefined. The end of a line stays. */
  withPlan(client: string, plan: string | undefined): KeyText {
    return this.#with(
      this.#lines.map((line) => {
        const { text, item } = line
        if (item?.client !== client || item.plan === plan) return line
        const { plan: _, ...rest } = item
        const changed = plan === undefined ? rest : { ...rest, plan }
        return { text: writeKeyLine(changed) + commentOf(text), item: changed }
      }),
    )
  }

  #with(lines: readonly Line[]): KeyText {
    return new KeyText(lines, this.#end)
  }

  toString(): string {
    const texts = this.#lines.map(({ text }) => text)
    const list = this.items.length === 0 ? ['[]'] : []
    return `${[...texts, ...list].join(this.#end)}${this.#end}`
  }
}
