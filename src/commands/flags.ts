import type { Argv } from 'yargs'
import { FLAGS } from './io.ts'

/** Declares a flag that takes a text. */
export function text(command: Argv, name: string, describe: string, otherwise?: string): Argv {
  const option = { type: 'string', requiresArg: true, describe } as const
  return command.option(name, otherwise === undefined ? option : { ...option, default: otherwise })
}

/** Declares `--json`. */
export function withJson(command: Argv): Argv {
  return command.option('json', { type: 'boolean', describe: 'as JSON' })
}

/** Declares `--config`. */
export function withConfig(command: Argv): Argv {
  return text(command, 'config', 'the YAML file, or - for standard input; SLUICE_CONFIG, unless given')
}

/** Declares the flags of the commands that read a configuration, in which flags override the file; hides those in `idle`. */
export function configured(command: Argv, idle: readonly string[] = []): Argv {
  withConfig(command)
  for (const [name, { describe }] of Object.entries(FLAGS)) {
    const group = 'In place of what the file says:'
    command.option(name, { type: 'string', requiresArg: true, describe, hidden: idle.includes(name), group })
  }
  return command.conflicts('store', 'redis')
}
