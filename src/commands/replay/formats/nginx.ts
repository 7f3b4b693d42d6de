import type { ReadLine } from './call.ts'
import { withoutPrefix } from './fields.ts'

/** Lines that `docker logs` shows besides requests: of the image's start scripts, and of nginx's error log. */
const OTHER_LINES = [
  /^\/docker-entrypoint\.sh: /,
  /^\d\d-[\w.-]{1,100}\.(?:sh|envsh): /,
  /^\d{4}\/\d\d\/\d\d \d\d:\d\d:\d\d \[[a-z]{1,10}\] \d{1,10}#\d{1,10}: /,
]

/** Returns a reader for which the lines that nginx and its image write besides requests are `other`. */
export function besidesNginx(read: ReadLine): ReadLine {
  return (text) => {
    if (text.startsWith('{')) return read(text)
    const line = withoutPrefix(text)
    return OTHER_LINES.some((one) => one.test(line)) ? 'other' : read(text)
  }
}
