import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { expect, it } from 'vitest'

/** Each folder of src, the folders that it may import, and the packages. Files directly in src have their own rows. */
const ROOMS = `
  errors             |                                                                              |
  health             | runtime                                                                      |
  runtime            |                                                                              | http-proxy ipaddr.js
  downstream         | errors runtime                                                               | negotiator
  downstream/listener | downstream errors runtime                                                   |
  limit              | runtime                                                                      |
  actual             |                                                                              |
  policy             | actual downstream errors limit runtime                                       |
  limit/memory       | limit runtime                                                                |
  limit/redis        | limit runtime                                                                | cluster-key-slot ioredis lru-cache
  limit/fallback     | errors health limit limit/memory runtime                                     |
  authenticate/jose  | runtime                                                                      | jose
  authenticate/key   | errors                                                                       |
  authenticate/proof | authenticate/jose downstream runtime                                         | lru-cache
  authenticate/token | authenticate/jose authenticate/proof errors health runtime                   | lru-cache p-limit
  par                | authenticate/jose authenticate/token errors runtime                                             |
  upstream           | downstream downstream/listener errors health runtime                                             |
  gateway            | actual authenticate/key authenticate/proof authenticate/token downstream downstream/listener errors limit limit/memory par policy runtime upstream | lru-cache
  observe            | actual gateway limit limit/fallback policy runtime                                         | @opentelemetry pino prom-client
  admin/overview     | config gateway limit observe policy runtime                                  |
  admin/requests     | admin/overview authenticate/key authenticate/token config downstream errors gateway limit observe policy runtime |
  admin              | admin/requests errors gateway observe policy runtime                                |
  config/yaml        | runtime                                                                      | fastest-levenshtein yaml zod
  config/keys        | authenticate/key config/sections config/yaml policy runtime | zod
  config/sections    | actual authenticate/jose authenticate/token config/yaml downstream limit/redis policy runtime | zod
  config             | authenticate/jose authenticate/key authenticate/token config/keys config/kept config/sections config/teams config/yaml downstream limit/redis policy par runtime | yaml zod
  config/teams       | config config/sections config/yaml downstream policy runtime                 |
  config/kept        | config config/yaml runtime                                                   | yaml
  process            | admin admin/overview admin/requests authenticate/jose authenticate/key authenticate/proof authenticate/token config config/kept downstream downstream/listener errors gateway limit limit/fallback limit/memory limit/redis policy observe par process/workers runtime upstream |
  process/workers    | admin/overview admin/requests config observe policy process runtime                   |
  commands           | actual admin/requests authenticate/jose authenticate/token commands/init commands/keys commands/limits commands/outage commands/past commands/replay commands/sandbox config config/sections config/teams config/yaml limit/redis observe policy process process/workers runtime upstream | p-limit yaml yargs
  commands/init      | authenticate/jose authenticate/key commands commands/keys config config/sections runtime                   |
  commands/keys      | authenticate/key commands config config/keys config/sections config/yaml runtime |
  commands/limits    | admin/overview admin/requests commands config/sections observe policy runtime |
  commands/outage    | commands config downstream gateway limit limit/fallback policy                          |
  commands/past      | commands commands/replay gateway observe runtime                            |
  commands/replay    | authenticate/key commands commands/replay/formats config config/yaml downstream errors limit limit/memory policy runtime | cli-progress
  commands/replay/formats | actual commands runtime                                                  |
  commands/sandbox   | authenticate/key commands config process runtime                                              | oidc-provider
  bin                | commands runtime                                                             |`

const words = (text = ''): readonly string[] => text.split(' ').filter(Boolean)
const rules = new Map(
  ROOMS.trim()
    .split('\n')
    .map((row) => {
      const [room = '', rooms, packages] = row.split('|').map((cell) => cell.trim())
      return [room, { rooms: words(rooms), packages: words(packages) }] as const
    }),
)
const files = ['src', 'bin'].flatMap((folder) =>
  readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => join(folder, name)),
)
const IMPORT = /^(?:import|export) (?:[^'`]*? from )?'([^']+)'|\b(?:import|require)\(['`]([^'`]+)['`]\)/gm
const importsOf = (file: string): readonly string[] =>
  [...readFileSync(file, 'utf8').matchAll(IMPORT)].map(([, name, later]) => name ?? later!)
const targetOf = (file: string, name: string): string => normalize(join(dirname(file), name))
const roomOf = (file: string): string =>
  (dirname(file) === 'src' ? file.replace('.ts', '') : dirname(file)).replace(/^src\//, '')

it('every room imports only the rooms and packages of its row', () => {
  const used = new Map([...rules.keys()].map((room) => [room, new Set<string>()]))
  const wrong: string[] = []
  for (const file of files) {
    const room = roomOf(file)
    for (const name of importsOf(file).filter((one) => !one.startsWith('node:'))) {
      const isFile = name.startsWith('.')
      const needed = isFile ? roomOf(targetOf(file, name)) : /^@?[^/]+/.exec(name)![0]
      if (needed === room) continue
      used.get(room)?.add(needed)
      const rule = rules.get(room)
      if (!(isFile ? rule?.rooms : rule?.packages)?.includes(needed)) wrong.push(`${file} imports ${needed}`)
    }
  }
  expect(wrong).toEqual([])
  const unused = [...rules].flatMap(([room, { rooms, packages }]) =>
    [...rooms, ...packages]
      .filter((one) => !used.get(room)!.has(one))
      .map((one) => `${room} does not import ${one}`),
  )
  expect(unused).toEqual([])
})

it('no room imports itself through others; a room inside another may import that one', () => {
  const done = new Set<string>()
  const circles: string[] = []
  function visit(room: string, path: readonly string[]): void {
    if (path.includes(room)) circles.push([...path.slice(path.indexOf(room)), room].join(' > '))
    if (done.has(room) || path.includes(room)) return
    for (const needed of rules.get(room)?.rooms ?? [])
      if (!room.startsWith(`${needed}/`)) visit(needed, [...path, room])
    done.add(room)
  }
  for (const room of rules.keys()) visit(room, [])
  expect(circles).toEqual([])
})

it('no file imports itself through others, types included', () => {
  const done = new Set<string>()
  const circles: string[] = []
  function visit(file: string, path: readonly string[]): void {
    if (path.includes(file)) circles.push([...path.slice(path.indexOf(file)), file].join(' > '))
    if (done.has(file) || path.includes(file)) return
    for (const name of importsOf(file).filter((one) => one.startsWith('.')))
      if (name.endsWith('.ts')) visit(targetOf(file, name), [...path, file])
    done.add(file)
  }
  for (const file of files) visit(file, [])
  expect(circles).toEqual([])
})

it('only src/runtime touches private parts of Node.js and of http-proxy', () => {
  const PRIVATE =
    /\b(?:_header|_httpMessage|_extend|webPasses|kOnMessageComplete|_handle|_parent|onIncoming|parser\?)\b/
  const outside = files.filter(
    (file) => roomOf(file) !== 'runtime' && PRIVATE.test(readFileSync(file, 'utf8')),
  )
  expect(outside).toEqual([])
})
