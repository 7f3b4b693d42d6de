import { formatKept } from '../config/kept/kept-file.ts'
import type { Texts } from '../config/texts.ts'
import type { Log } from '../observe/log.ts'
import { replaceFile } from '../runtime/replace-file.ts'
import { toError } from '../runtime/to-error.ts'

/**
 * Writes a configuration that was applied to the file of `configuration.keep`, for a process that
 * finds mistakes in the files. Never rejects.
 */
export async function keepConfiguration(
  keep: string,
  texts: Texts,
  mainFile: string,
  log: Log,
): Promise<void> {
  try {
    await replaceFile(keep, Buffer.from(formatKept(texts, mainFile)))
  } catch (error) {
    log.error(
      { file: keep, cause: toError(error).message },
      'configuration not kept; the next reload tries again',
    )
  }
}
