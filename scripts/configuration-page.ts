interface Schema {
  readonly type?: string
  readonly description?: string
  readonly default?: unknown
  readonly enum?: readonly unknown[]
  readonly const?: unknown
  readonly pattern?: string
  readonly minimum?: number
  readonly maximum?: number
  readonly required?: readonly string[]
  readonly properties?: Readonly<Record<string, Schema>>
  readonly additionalProperties?: Schema
  readonly items?: Schema
  readonly anyOf?: readonly Schema[]
  readonly $ref?: string
}

const HEAD = `# Configuration

Every key of the file. \`npm run schema\` writes this page from \`src/config\`; [config/sluice.yaml](../config/sluice.yaml) is an
annotated example with every key.

- A *duration* has a unit: \`ms\`, \`s\`, \`m\`, \`h\` or \`d\`. A *size* has one: \`B\`, \`kB\` (1024 bytes), \`MB\` or \`GB\`. An *instant*
  is in ISO 8601 format, with \`Z\` or an offset.
- Any value may contain \`\${NAME}\` or \`\${NAME:-default}\` from the environment. \`$\${\` is a literal \`\${\`.
  A list of addresses, hosts or URLs may have several in one text, separated by commas: \`trustedProxies: ["\${PODS}"]\`.
- A secret may be \`file:/path\`; the file is read again when it changes. Other paths are relative to the file.
- Unknown keys are mistakes. \`sluice check\` lists the mistakes of a file, or its settings. Mistakes that involve several
  sections, such as an unreachable route, are listed once the others are corrected; undefined names at once.
- Five keys of limits begin alike: [which of them do you want?](choosing-a-limit.md#3-which-of-these-keys-do-you-want)
- [Reload](operating.md#reload) says what a reload applies, and what needs a restart.
`

const TEAM = `## The file of a team

A file that \`include\` matches has one or both of these keys, and \`routes\`, \`limits\`, \`upstreams\` and \`parameters\` as
above. [Many teams, one gateway](operating.md#many-teams-one-gateway) explains them.`

/** Returns the reference of the configuration's keys as Markdown, from the JSON Schemas of the file and of a team's file. */
export function configurationPage(schema: object, team: object): string {
  const { properties = {}, required = [] } = schema as Schema
  const sections = Object.entries(properties).map(([name, section]) => {
    const below = rowsBelow(name, section)
    const isRequired = required.includes(name)
    const rows = below.length > 0 ? below : [row(name, section, isRequired)]
    const what = below.length > 0 ? [cell(section.description ?? '') + (isRequired ? ' Required.' : '')] : []
    return [
      `## ${name}`,
      ...what,
      ['| key | value | default | |', '|---|---|---|---|', ...rows].join('\n'),
    ].join('\n\n')
  })
  const ofTeams = Object.entries((team as Schema).properties ?? {}).filter(([key]) => !(key in properties))
  const rows = ofTeams.map(([key, property]) => row(key, property))
  const table = ['| key | value | default | |', '|---|---|---|---|', ...rows].join('\n')
  return `${[HEAD.trimEnd(), ...sections, TEAM, table].join('\n\n')}\n`
}

/** Returns the rows of the keys of a mapping, of its values, or of the items of a list. */
function rowsBelow(path: string, schema: Schema): readonly string[] {
  const { properties, required = [], additionalProperties: values, items } = shapeOf(schema)
  if (properties)
    return Object.entries(properties).flatMap(([key, property]) => [
      row(`${path}.${key}`, property, required.includes(key)),
      ...rowsBelow(`${path}.${key}`, property),
    ])
  const isText = [values, ...(values?.anyOf ?? [])].some((one) => one?.type === 'string')
  const own = isText ? [row(`${path}.NAME`, values!)] : []
  if (values) return [...own, ...rowsBelow(`${path}.NAME`, values)]
  return items ? rowsBelow(`${path}[]`, items) : []
}

function row(path: string, schema: Schema, isRequired = false): string {
  const otherwise = isRequired ? 'required' : shown(schema.default)
  return `| \`${path}\` | ${valueOf(schema)} | ${otherwise} | ${cell(schema.description ?? '')} |`
}

/** Returns the alternative that has keys, else the first. */
function shapeOf(schema: Schema): Schema {
  const { anyOf } = schema
  return anyOf ? (anyOf.map(shapeOf).find(({ properties }) => properties) ?? shapeOf(anyOf[0]!)) : schema
}

/** Describes the allowed values. */
function valueOf(schema: Schema): string {
  const { type, anyOf, enum: values, pattern = '', items, minimum, maximum, const: only } = schema
  if (anyOf) {
    const kinds = anyOf.filter(({ $ref }) => $ref === undefined).map(valueOf)
    return [...new Set(kinds)].join(', or ')
  }
  if (values) return values.map((value) => `\`${String(value)}\``).join(', ')
  if (only !== undefined) return `\`${JSON.stringify(only).replaceAll('"', '')}\``
  if (pattern.includes('ms|')) return 'duration'
  if (pattern.includes('kB|')) return 'size'
  if (pattern.endsWith('%$')) return 'percentage'
  if (pattern.includes('T\\d')) return 'instant'
  if (type === 'array') return items?.properties ? 'list of mappings' : `list of ${valueOf(items ?? {})}`
  if (type === 'object') return 'mapping'
  if (type === 'boolean') return '`true`, `false`'
  if (type !== 'integer') return 'text'
  return maximum === undefined || maximum === Number.MAX_SAFE_INTEGER
    ? `${minimum} or more`
    : `${minimum} to ${maximum}`
}

function shown(value: unknown): string {
  if (value === undefined || (typeof value === 'object' && Object.keys(value as object).length === 0))
    return ''
  return `\`${Array.isArray(value) ? `[${value.join(', ')}]` : JSON.stringify(value).replaceAll('"', '')}\``
}

/** Escapes the delimiters of columns and tags in Markdown. */
function cell(text: string): string {
  return text.replaceAll(/[|<]/g, String.raw`\$&`).replaceAll('’', "'")
}
