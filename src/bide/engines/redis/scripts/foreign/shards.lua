-- Which shard a message belongs to. A caller begins at shard 0, and is sent on to another shard if the message belongs there.
-- It is told two keys: the second, which never exists, ends with how many generations of shards were asked already, and how
-- messages are spread as far as was known there. topology.py and namespace.py are the same for Python.

local function read_spread(text)
  local epoch, rest = string.match(text, '^(%d+):(.*)$')
  local found = {epoch = tonumber(epoch or 0)}
  for part in string.gmatch(rest or text, '[^|]+') do
    local size, first, written = string.match(part, '^(%d+)@?(%d*)(.*)$')
    local one = {size = tonumber(size), first = tonumber(first) or 0, suffixes = {}}
    for suffix in string.gmatch(written, '%d+') do one.suffixes[#one.suffixes + 1] = suffix end
    found[#found + 1] = one
  end
  return found
end

local function prefix_of(namespace, generation, number)
  local suffix = number > 0 and generation.suffixes[number - generation.first + (generation.first == 0 and 0 or 1)]
  return format('{%s:%d%s}:', namespace, number, suffix and '.' .. suffix or '')
end

local function crc32(text)
  local crc = -1
  for i = 1, #text do
    crc = bit.bxor(crc, string.byte(text, i))
    for _ = 1, 8 do crc = bit.bxor(bit.rshift(crc, 1), bit.band(-bit.band(crc, 1), 0xEDB88320)) end
  end
  return bit.bnot(crc) % 4294967296
end

local function other_shard(prefix, rest)
  local sentence = 'This message belongs to another shard: call again with these two keys.'
  refuse('OTHERSHARD', format('%smeta %s-%s %s', prefix, prefix, rest, sentence))
end

-- Go on to the shard of the generation after so many.
local function redirect(here, asked, new)
  other_shard(here.prefix_for(asked + 1, new), asked .. '=' .. here.shards)
end

local function keys_told()
  local tag = string.match(KEYS[1] or '', '^{(.*)}:meta$')
  local namespace, number = string.match(tag or '', '^(.+):(%d+)[.%d]*$')
  local prefix = tag and '{' .. tag .. '}:'
  local second = KEYS[2] or ''
  if not namespace or #KEYS ~= 2 or tonumber(number) > 127 or string.sub(second, 1, #prefix + 1) ~= prefix .. '-' then
    bad('Give two keys: for the namespace bide these are {bide:0}:meta and {bide:0}:-')
  end
  local asked, shards = string.match(string.sub(second, #prefix + 2), '^(%d+)=(%d[%d:;@|]*)$')
  if not asked and #second > #prefix + 1 then bad('The second key is none that this script has named.') end
  return {namespace = namespace, number = tonumber(number), prefix = prefix, asked = tonumber(asked or 0), shards = shards}
end

-- What this shard has not heard of yet, it learns from the caller, as `pin` and `spread` tell it for Python.
local function learn(shards, before)
  redis.call('HSET', KEYS[1], 'layout', (before or not tonumber(shards)) and '4' or '3', 'shards', shards)
  if not before then return end
  local raw, mark = unpack(redis.call('HMGET', KEYS[1], 'raw', 'mark')) -- from when on: rather too late a time than too early
  local time = redis.call('TIME')
  local us = time[1] * 1000000 + time[2]
  us = math.max(us, (mark or 0) + math.max(0, us - (raw or us)))
  redis.call('HSET', KEYS[1], 'respread', format('%d', math.ceil(us / 1000)))
end

-- Of what is called here; `put` asks for the rest.
local function check_rights()
  for _, called in ipairs({{'HMGET', KEYS[1], '-'}, {'HSET', KEYS[1], '-', '-'}, {'TIME'}}) do
    if redis.acl_check_cmd and not redis.acl_check_cmd(unpack(called)) then error('NORIGHT ' .. called[1], 0) end
  end
end

-- Here, if the message belongs here: else its sender is told where. What has no key and no operation may be on any shard.
local function arrive(new)
  local here = keys_told()
  check_rights()
  local layout, stored = unpack(redis.call('HMGET', KEYS[1], 'layout', 'shards'))
  if layout and layout ~= '3' and layout ~= '4' then
    refuse('BADLAYOUT', format('This queue has layout %s, and this script knows 3 and 4. Print it anew with the release of '
      .. 'bide that your workers have: bide script send', layout))
  end
  if not stored and not here.shards then
    if here.number > 0 then other_shard('{' .. here.namespace .. ':0}:', '') end
    if not new.shards then
      refuse('NOQUEUE', format('There is no queue in the namespace %s yet. If that is its name, send a first message from '
        .. 'Python, or add the option shards with the number of its shards, as in: shards 1', quoted(here.namespace)))
    end
    stored = format('%d', new.shards)
    learn(stored)
  end
  local told = here.shards
  local newer = told and (not stored or read_spread(told).epoch > read_spread(stored).epoch)
  if not newer then
    if told ~= stored then here.asked = 0 end
    here.shards = stored
  end
  local spread = read_spread(here.shards)
  function here.prefix_for(turn, of)
    local generation = spread[turn]
    local number = generation.first
    if generation.size > 1 then
      local name = of.key ~= '' and of.key or of.operation
      local hash = crc32(name ~= '' and of.topic .. ' ' .. name or table.concat(redis.call('TIME')))
      number = number + hash % generation.size
    end
    return prefix_of(here.namespace, generation, number)
  end
  local function belongs_here(generation)
    return here.number >= generation.first and here.number < generation.first + generation.size
      and here.prefix == prefix_of(here.namespace, generation, here.number)
  end
  local is_named = new.key ~= '' or new.operation ~= ''
  if not is_named or here.asked >= #spread then here.asked = #spread - 1 end
  if is_named and here.prefix_for(here.asked + 1, new) ~= here.prefix or not is_named and not belongs_here(spread[#spread]) then
    redirect(here, here.asked, new)
  end
  if newer then learn(here.shards, stored) end
  return here
end
