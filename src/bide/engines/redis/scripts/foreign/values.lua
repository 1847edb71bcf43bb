-- Values as a caller writes them, read and checked.

local format = string.format

-- What is thrown is the answer: an error of Redis, whose first word is a code.
local function refuse(code, sentence) error({err = code .. ' ' .. sentence}, 0) end
local function bad(sentence, ...) refuse('BADOPTION', format(sentence, ...)) end

local function quoted(text) return "'" .. string.gsub(string.sub(text, 1, 40), '[^%w_.-]', '?') .. "'" end

local function is_utf8(text)
  if not string.find(text, '[\128-\255]') then return true end
  for _, form in ipairs({
    '[\194-\223][\128-\191]', '\224[\160-\191][\128-\191]', '[\225-\236\238\239][\128-\191][\128-\191]',
    '\237[\128-\159][\128-\191]', '\240[\144-\191][\128-\191][\128-\191]',
    '[\241-\243][\128-\191][\128-\191][\128-\191]', '\244[\128-\143][\128-\191][\128-\191]',
  }) do text = string.gsub(text, form, ' ') end
  return not string.find(text, '[\128-\255]')
end

-- Characters that Python does not take for printable: controls, formats, private ones, and each space but the usual one.
local UNSEEN = {
  '\194[\128-\160\173]', '\216[\128-\133\156]', '\219\157', '\220\143', '\224\162[\144\145]', '\224\163\162', '\225\154\128',
  '\225\160\142', '\226\128[\128-\143\168-\175]', '\226\129[\159-\175]', '\227\128\128', '\238', '\239[\128-\163]', '\239\187\191',
  '\239\191[\176-\187\190\191]', '\240\145\130\189', '\240\145\131\141', '\240\147\144[\176-\191]', '\240\155\178[\160-\163]',
  '\240\157\133[\179-\186]', '\243\160[\128\129]', '\243[\176-\191]', '\244',
}

local function is_seen(text)
  if string.find(text, '%c') then return false end
  if not string.find(text, '[\128-\255]') then return true end
  for _, form in ipairs(UNSEEN) do
    if string.find(text, form) then return false end
  end
  return is_utf8(text)
end

-- A key or an operation: Python, too, names messages by it.
local function check_name(name, text, longest)
  local _, length = string.gsub(text, '[^\128-\191]', '')
  if not is_seen(text) or length < 1 or length > longest then
    bad('%s: give 1 to %d printable characters in UTF-8, and no space but the usual one.', name, longest)
  end
end

local function one_of(name, text, values)
  if not values[text] then
    local names = {}
    for each in pairs(values) do names[#names + 1] = each end
    table.sort(names)
    bad('%s is %s. Give one of: %s.', name, quoted(text), table.concat(names, ', '))
  end
  return values[text]
end

local function count(name, text, most)
  local value = string.find(text, '^%d+$') and tonumber(text) or 0
  if value < 1 or value > most then bad('%s is %s. Give a whole number from 1 to %d.', name, quoted(text), most) end
  return value
end

-- Times, in whole milliseconds: rounded up, so never early.

local LONGEST = 3155760000000 -- a hundred years
local UNITS = {ms = 1, s = 1000, m = 60000, h = 3600000, d = 86400000, w = 604800000}

-- A product of a fraction's digits and a unit has no more than 53 bits behind its twos, so it is exact.
local function part_of(whole, fraction, unit)
  fraction = string.gsub(string.sub(fraction, 2), '0+$', '')
  local parts, of = (tonumber(fraction) or 0) * unit, 10 ^ #fraction
  local rest = math.fmod(parts, of)
  return tonumber(whole) * unit + (parts - rest) / of + (rest > 0 and 1 or 0)
end

local function duration(name, text)
  local left, ms = string.gsub(text, ' ', ''), 0
  if string.find(left, '^[%d.]+$') then left = left .. 's' end
  repeat
    local whole, fraction, unit, rest = string.match(left, '^(%d+)(%.?%d*)(%l+)(.*)$')
    if #text > 100 or not UNITS[unit or ''] or #whole > 15 or #fraction > 10 or fraction == '.' then
      bad('%s is %s. Give seconds (90), or text such as 1h30m (units: ms s m h d w); 0 or more.', name, quoted(text))
    end
    ms, left = ms + part_of(whole, fraction, UNITS[unit]), rest
  until left == ''
  if ms > LONGEST then bad('%s is over a hundred years. The longest is 36525d.', name) end
  return ms
end

local function days_of(month, year)
  if month == 2 then return (year % 4 == 0 and (year % 100 ~= 0 or year % 400 == 0)) and 29 or 28 end
  return (month == 4 or month == 6 or month == 9 or month == 11) and 30 or 31
end

local function days_since_1970(year, month, day)
  if month <= 2 then year = year - 1 end
  local of_year = math.floor((153 * ((month + 9) % 12) + 2) / 5) + day - 1
  return 365 * year + math.floor(year / 4) - math.floor(year / 100) + math.floor(year / 400) + of_year - 719468
end

local function instant(text)
  local year, month, day, hour, minute, rest = string.match(text, '^(%d%d%d%d)%-(%d%d)%-(%d%d)[Tt ](%d%d):(%d%d)(.*)$')
  local second, after = string.match(rest or '', '^:(%d%d)(.*)$')
  local fraction, zone = string.match(after or '', '^[.,](%d+)(.*)$')
  zone = string.upper(zone or after or rest or '')
  local sign, hours, minutes = string.match(zone, '^([+-])(%d%d):?(%d%d)$')
  if not year or not (sign or zone == 'Z') then
    bad('at is %s. Give a date and time with its offset: 2030-01-15T09:00:00+01:00 or 2030-01-15T08:00:00.000Z.', quoted(text))
  end
  year, month, day, hour, minute = tonumber(year), tonumber(month), tonumber(day), tonumber(hour), tonumber(minute)
  second, hours, minutes, fraction = tonumber(second or 0), tonumber(hours or 0), tonumber(minutes or 0), fraction or ''
  if month < 1 or month > 12 or day < 1 or day > days_of(month, year) or hour > 23 or minute > 59 or second > 59
    or hours > 23 or minutes > 59 then
    bad('at is %s, and there is no such date or time.', quoted(text))
  end
  local offset = (hours * 60 + minutes) * (sign == '-' and -60 or 60)
  local ms = tonumber(string.sub(fraction .. '000', 1, 3)) + (string.find(fraction, '[1-9]', 4) and 1 or 0)
  local seconds = days_since_1970(year, month, day) * 86400 + hour * 3600 + minute * 60 + second - offset
  return math.max(0, seconds * 1000 + ms)
end

-- JSON. cjson also takes what is none: NaN, 0x10, 01, 1. and strings with control characters.

local WORDS = {['true'] = true, ['false'] = true, null = true}

local function is_number(word)
  local whole, rest = string.match(word, '^%-?(%d+)(.*)$')
  if not whole or string.find(whole, '^0.') then return false end
  rest = string.gsub(rest, '^%.%d+', '')
  return (rest == '' or string.find(rest, '^[eE][+-]?%d+$')) and math.abs(tonumber(word)) < math.huge
end

local function is_json(text)
  if not is_utf8(text) or not pcall(cjson.decode, text) then return false end
  local plain = true
  local bare = string.gsub(string.gsub(text, '\\.', ''), '"[^"]*"', function(string_)
    if string.find(string_, '[%z\1-\31]') then plain = false end
    return ' '
  end)
  for word in string.gmatch(bare, '[^%s%[%]{},:]+') do
    if not WORDS[word] and not is_number(word) then return false end
  end
  return plain
end
