/** One mistake in a configuration, or a warning, and where it stands. */
export interface Problem {
  /** `file:line:column`, or the flag that gave the value. */
  readonly where: string
  /** Such as `routes[2].upstream`; empty for the file as a whole. */
  readonly path: string
  /** What is wrong and what to write instead. */
  readonly message: string
}

/** Every mistake of a configuration, in the order of the file; its message has a line for each. */
export class ConfigError extends Error {
  readonly problems: readonly Problem[]

  constructor(problems: readonly Problem[]) {
    super(problems.map((problem) => problemLine(problem)).join('\n'))
    this.name = 'ConfigError'
    this.problems = problems
  }
}

/** A problem in a line: `sluice.yaml:3:9: admin.port: what is wrong`. */
export function problemLine({ where, path, message }: Problem): string {
  return [where, path, message].filter(Boolean).join(': ')
}
