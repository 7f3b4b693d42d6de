-- The library `struct` of Redis, for formats of a fixed size: byte order (> and <), integers (b, h, i, l; upper case: unsigned;
-- i and I with a size), x and c with a size. Generates a function per format. Returns `pack` and `unpack`.

local SIZES = { b = 1, h = 2, i = 4, l = 8 }
local byte, char, floor, ceil = string.byte, string.char, math.floor, math.ceil
local format, concat = string.format, table.concat

local RUNTIME = { byte = byte, char = char, error = error, floor = floor, ceil = ceil, tonumber = tonumber, type = type, sub = string.sub }
function RUNTIME.integer(value, index)
  local number = tonumber(value)
  if not number then error(format("bad argument #%d to 'pack' (number expected, got %s)", index + 1, value == nil and 'no value' or type(value)), 4) end
  return number >= 0 and floor(number) or ceil(number)
end

-- Returns the fields of a format: letter, size, offset and whether the most significant byte is first; and the total size.
local function parse(text)
  local fields, big, total = {}, false, 0
  for letter, digits in text:gmatch('(%S)(%d*)') do
    if letter == '>' or letter == '<' then
      big = letter == '>'
    else
      local lower = letter:lower()
      local sized = lower == 'i' or letter == 'c' or letter == 'x'
      local size = sized and tonumber(digits) or letter == 'x' and 1 or SIZES[lower]
      if not size or size == 0 or digits ~= '' and not sized then error('the model of struct has no format ' .. letter .. digits, 0) end
      fields[#fields + 1] = { letter = letter, size = size, at = total, big = big }
      total = total + size
    end
  end
  return fields, total
end

-- Returns the power of 256 of a byte of a field, as a literal.
local function weight(field, index)
  return format('%.0f', 256 ^ (field.big and field.size - index or index - 1))
end

local function compile(body)
  return setfenv(assert(loadstring(body)), RUNTIME)()
end

local function unpacker(text)
  local fields, total = parse(text)
  local values, lines = {}, {}
  for index, field in ipairs(fields) do
    local from, to = field.at, field.at + field.size - 1
    if field.letter == 'c' then
      values[#values + 1] = format('sub(text, at + %.0f, at + %.0f)', from, to)
    elseif field.letter ~= 'x' then
      local names, terms = {}, {}
      for i = 1, field.size do
        names[i] = format('b%.0f', i)
        -- The most significant byte first, to stay exact.
        terms[field.big and i or field.size + 1 - i] = format('b%.0f * %s', i, weight(field, i))
      end
      local name, most = format('v%.0f', index), names[field.big and 1 or field.size]
      local sign = field.letter:match('%l') and format('if %s > 127 then %s = %s - 256 end', most, most, most) or ''
      lines[#lines + 1] = format(
        'local %s do local %s = byte(text, at + %.0f, at + %.0f) %s %s = %s end',
        name, concat(names, ','), from, to, sign, name, concat(terms, '+')
      )
      values[#values + 1] = name
    end
  end
  values[#values + 1] = format('at + %.0f', total)
  return compile(format(
    [[local byte, sub = byte, sub
    return function(text, at)
      at = at or 1
      if at + %.0f > #text then error("bad argument #2 to 'unpack' (data string too short)", 3) end
      %s
      return %s
    end]],
    total - 1, concat(lines, '\n'), concat(values, ', ')
  ))
end

local function packer(text)
  local parameters, lines, bytes = {}, {}, {}
  for _, field in ipairs((parse(text))) do
    if field.letter == 'c' then error('the model of struct does not pack c', 0) end
    local name = format('v%.0f', #parameters + 1)
    if field.letter ~= 'x' then
      parameters[#parameters + 1] = name
      lines[#lines + 1] = format("if type(%s) ~= 'number' or %s %% 1 ~= 0 then %s = integer(%s, %.0f) end", name, name, name, name, #parameters)
    end
    for i = 1, field.size do
      bytes[#bytes + 1] = field.letter == 'x' and '0' or format('floor(%s / %s) %% 256', name, weight(field, i))
    end
  end
  return compile(format(
    [[local char, floor, type, integer = char, floor, type, integer
    return function(%s)
      %s
      return char(%s)
    end]],
    concat(parameters, ', '), concat(lines, '\n'), concat(bytes, ', ')
  ))
end

-- A function has at most 250 registers: a longer format is read and written in pieces.
local MOST_FIELDS = 16

-- Returns the formats of the pieces, with their numbers of fields and of bytes.
local function pieces(text)
  local fields = parse(text)
  local all = {}
  for first = 1, #fields, MOST_FIELDS do
    local parts, bytes, count = {}, 0, 0
    for index = first, math.min(first + MOST_FIELDS - 1, #fields) do
      local field = fields[index]
      local size = SIZES[field.letter:lower()] and field.letter:lower() ~= 'i' and '' or field.size
      parts[#parts + 1] = (field.big and '>' or '<') .. field.letter .. size
      bytes, count = bytes + field.size, count + (field.letter == 'x' and 0 or 1)
    end
    all[#all + 1] = { text = concat(parts), bytes = bytes, count = count }
  end
  return all
end

local function longUnpacker(text)
  local all = pieces(text)
  for _, piece in ipairs(all) do piece.run = unpacker(piece.text) end
  return function(bytes, at)
    at = at or 1
    local values, size = {}, 0
    for _, piece in ipairs(all) do
      local some = { piece.run(bytes, at) }
      for i = 1, piece.count do values[size + i] = some[i] end
      size, at = size + piece.count, at + piece.bytes
    end
    values[size + 1] = at
    return unpack(values, 1, size + 1)
  end
end

local function longPacker(text)
  local all = pieces(text)
  for _, piece in ipairs(all) do piece.run = packer(piece.text) end
  return function(...)
    local values, parts, from = { ... }, {}, 1
    for i, piece in ipairs(all) do
      parts[i] = piece.run(unpack(values, from, from + piece.count - 1))
      from = from + piece.count
    end
    return concat(parts)
  end
end

local unpackers, packers = {}, {}

return {
  unpack = function(text, ...)
    local run = unpackers[text]
    if not run then
      run = (#parse(text) > MOST_FIELDS and longUnpacker or unpacker)(text)
      unpackers[text] = run
    end
    return run(...)
  end,
  pack = function(text, ...)
    local run = packers[text]
    if not run then
      run = (#parse(text) > MOST_FIELDS and longPacker or packer)(text)
      packers[text] = run
    end
    return run(...)
  end,
}
