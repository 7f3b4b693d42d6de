import { readFileSync } from 'node:fs'
import startLua from 'lua-wasm-bindings/dist/glue/glue-lua-5.1.5.js'

/** The interface of Lua 5.1 in C, as far as it is used. Pointers are indexes of the memory. */
interface Lua {
  readonly HEAPU8: Uint8Array<ArrayBuffer>
  _malloc(bytes: number): number
  _luaL_newstate(): number
  _luaL_openlibs(state: number): void
  _luaL_loadstring(state: number, text: number): number
  _lua_pcall(state: number, given: number, results: number, handler: number): number
  _lua_pushstring(state: number, text: number): void
  _lua_pushvalue(state: number, index: number): void
  _lua_setfield(state: number, index: number, name: number): void
  _lua_settop(state: number, index: number): void
  _lua_tolstring(state: number, index: number, length: number): number
}

/** The index of the globals in Lua 5.1. */
const GLOBALS = -10_002
const FILES = ['struct', 'data', 'keys', 'collections', 'sandbox', 'server']
const FUNCTIONS = ['create', 'close', 'release', 'run']

const BEGIN = `
local function file(name, ...) return assert(loadstring(_G['file ' .. name], '=' .. name))(...) end
local struct, data = file('struct'), file('data')
file('keys', data)
file('collections', data)
server = file('server', data, file('sandbox', data, struct))`

/** Calls a function of server.lua with a string without zeros; returns a string, which is empty for nil. */
type CallServer = (name: string, text: string) => string

let call: CallServer | undefined

/** Returns the function that calls server.lua in the interpreter of this process, which all models share. */
export const interpreter = (): CallServer => (call ??= start())

function start(): CallServer {
  const lua = load()
  const state = lua._luaL_newstate()
  const lengthAt = lua._malloc(4)
  let size = 65_536
  let textAt = lua._malloc(size)
  let memory = Buffer.from(lua.HEAPU8.buffer)

  /** Returns the memory, which moves when it grows. */
  function bytes(): Buffer {
    if (memory.buffer !== lua.HEAPU8.buffer) memory = Buffer.from(lua.HEAPU8.buffer)
    return memory
  }
  /** Returns a pointer to a text, until the next call. */
  function write(text: string): number {
    if (3 * text.length >= size) {
      size = 6 * text.length
      textAt = lua._malloc(size)
    }
    const length = bytes().write(text, textAt, 'utf8')
    memory[textAt + length] = 0
    return textAt
  }
  function read(): string {
    const at = lua._lua_tolstring(state, -1, lengthAt)
    return at === 0 ? '' : bytes().toString('utf8', at, at + memory.readUInt32LE(lengthAt))
  }
  function check(status: number): void {
    if (status !== 0) throw new Error(`The model of Redis failed: ${read()}`)
  }
  function run(text: string, results: number): void {
    check(lua._luaL_loadstring(state, write(text)))
    check(lua._lua_pcall(state, 0, results, 0))
  }

  lua._luaL_openlibs(state)
  for (const name of FILES) {
    lua._lua_pushstring(state, write(readFileSync(new URL(`${name}.lua`, import.meta.url), 'utf8')))
    lua._lua_setfield(state, GLOBALS, write(`file ${name}`))
  }
  run(BEGIN, 0)
  // The functions stay on the stack, from index 1.
  for (const name of FUNCTIONS) run(`return server.${name}`, 1)

  return (name, text) => {
    lua._lua_pushvalue(state, FUNCTIONS.indexOf(name) + 1)
    lua._lua_pushstring(state, write(text))
    try {
      check(lua._lua_pcall(state, 1, 1, 0))
      return read()
    } finally {
      lua._lua_settop(state, FUNCTIONS.length)
    }
  }
}

/** Loads Lua, without its handlers of this process's errors: they end the interpreter at any unhandled rejection. */
function load(): Lua {
  const events = ['uncaughtException', 'unhandledRejection']
  const before = new Set(events.flatMap((event) => process.listeners(event as 'exit')))
  const lua = (startLua as unknown as () => Lua)()
  for (const event of events) {
    for (const listener of process.listeners(event as 'exit')) {
      if (!before.has(listener)) process.off(event, listener)
    }
  }
  return lua
}
