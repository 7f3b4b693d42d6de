/** Returns the words of a text, which blanks and line ends separate. */
export const words = (text: string): readonly string[] => text.trim().split(/\s+/)
