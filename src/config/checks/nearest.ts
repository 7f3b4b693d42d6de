/** The one of `known` that `word` was probably meant to be: at most a third of it differs, or only case and dashes. */
export function nearest(word: string, known: readonly string[]): string | undefined {
  let best: string | undefined
  let least = Math.min(3, Math.ceil(word.length / 3)) + 1
  for (const candidate of known) {
    const distance = plain(candidate) === plain(word) ? 0 : edits(word, candidate)
    if (distance < least) {
      least = distance
      best = candidate
    }
  }
  return best
}

function plain(word: string): string {
  return word.toLowerCase().replaceAll(/[-_ ]/g, '')
}

/** The edits between two words: insert, delete, replace, or swap two neighbours (optimal string alignment). */
function edits(a: string, b: string): number {
  if (Math.abs(a.length - b.length) > 3) return Infinity
  let before: number[] = []
  let last = Array.from({ length: b.length + 1 }, (_, j) => j)
  for (let i = 1; i <= a.length; i++) {
    const row = [i]
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1]
      let cost = Math.min(last[j]! + 1, row[j - 1]! + 1, last[j - 1]! + (same ? 0 : 1))
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1])
        cost = Math.min(cost, before[j - 2]! + 1)
      row.push(cost)
    }
    before = last
    last = row
  }
  return last[b.length]!
}
