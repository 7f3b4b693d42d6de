/** Creates the finder of lines and columns in a text. */
export function createLines(text: string) {
  /** The offsets at which lines begin. */
  let starts: readonly number[] | undefined

  function startsOf(): readonly number[] {
    const found = [0]
    for (let i = text.indexOf('\n'); i !== -1; i = text.indexOf('\n', i + 1)) found.push(i + 1)
    return found
  }

  return {
    /** Returns `line:column` of an offset, both from 1. */
    position(offset: number): string {
      starts ??= startsOf()
      let [low, high] = [0, starts.length - 1]
      while (low < high) {
        const middle = Math.ceil((low + high) / 2)
        if (starts[middle]! <= offset) low = middle
        else high = middle - 1
      }
      return `${low + 1}:${offset - starts[low]! + 1}`
    },
  }
}
