/** The suffixes by which Rails' routes, and others, tell in which format to answer. */
const FORMATS: ReadonlySet<string> = new Set(
  (
    'json jsonp jsonapi ndjson xml xhtml html htm txt text js css csv tsv yaml yml rss atom md pdf ics vcf vtt ' +
    'png jpg jpeg gif bmp tif tiff svg webp mp3 mp4 mpeg ogg webm zip gz gzip xls xlsx turbo_stream'
  ).split(' '),
)

/** A text in lower case without the suffixes `.json` and the like, however many stand at its end: what they stand behind is one thing to the frameworks that know them. */
export function withoutFormat(text: string): string {
  let rest = text
  for (;;) {
    const dot = rest.lastIndexOf('.')
    if (dot === -1 || !FORMATS.has(rest.slice(dot + 1))) return rest
    rest = rest.slice(0, dot).trimEnd()
  }
}
