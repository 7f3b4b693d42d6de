import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { foldSegment } from '../src/fold.ts'

const fold = (text: string): string => foldSegment(encodeURIComponent(text))

describe('what a segment shares with all that is taken for it', () => {
  it.each([
    ['AB-c1', 'ab-c1'],
    ['Straße', 'strasse'],
    ['ΣΑΣ', 'σας'],
    ['éÉe\u0301', 'eee'],
    ['ﬁ①ｋK', 'fi1kk'],
    ['a\u00adb\u200b\u200d\ufeff\u{e0020}\ufe0f', 'ab'],
    ['ØøĐđŁłĦð', 'ooddllhd'],
    ['Æsœ', 'aesoe'],
    ['٣৩３', '333'],
    ['\u0363b', 'ab'],
    ['ا\u0640ب', 'اب'],
    ['\u3000 a b\u00a0', 'a b'],
    ['ŉ', 'ʼn'],
    ['가', '가'],
    ['漢字', '漢字'],
    ['аЕ', 'ае'],
    ['€·', '€·'],
    ['\u0301', ''],
  ])('%s is %s', (text, folded) => {
    expect(fold(text)).toBe(folded)
  })

  it('is what a collation without accents goes by, for every character that is one of ASCII to it', () => {
    const collation = new Intl.Collator('en', { sensitivity: 'base' })
    const blocks = [
      [0xa0, 0x0700],
      [0x1d00, 0x2600],
      [0xa700, 0xa800],
      [0xff00, 0xfff0],
      [0x1_f100, 0x1_f200],
    ] as const
    const wrong: string[] = []
    for (const [from, to] of blocks) {
      for (let code = from; code < to; code++) {
        const char = String.fromCodePoint(code)
        const same = [...'abcdefghijklmnopqrstuvwxyz0123456789'].find(
          (one) => collation.compare(one, char) === 0,
        )
        // Catalan's l with a dot keeps the dot.
        if (same !== undefined && fold(char).replace('·', '') !== same) wrong.push(char)
      }
    }
    expect(wrong).toEqual([])
  })

  it('is the same when folded again, and for every case and form of a text', () => {
    const text = fc.array(fc.oneof(fc.string({ unit: 'binary' }), fc.string({ unit: 'grapheme' })))
    fc.assert(
      fc.property(
        // The iota below Greek letters is a mark in one case and a letter in the other.
        text.map((parts) =>
          parts
            .join('')
            .normalize('NFD')
            .replaceAll(/\p{Surrogate}|\u0345/gu, ''),
        ),
        (one) => {
          const folded = fold(one)
          expect(fold(folded)).toBe(folded)
          for (const other of [
            one.toUpperCase(),
            one.normalize('NFC'),
            one.normalize('NFD'),
            one.normalize('NFKC'),
            one.normalize('NFKD'),
            `\u200b${one}\u00a0`,
          ])
            expect(fold(other)).toBe(folded)
        },
      ),
    )
  })
})
