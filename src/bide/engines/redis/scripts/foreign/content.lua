-- A message: its options, and what is stored of it. protocol/encoding.py is the same for Python.

local OPTIONS = { -- tests add `now`, and `within`, which names the message whose handler sends this
  delay = true, at = true, key = true, if_exists = true, priority = true, expires_in = true, max_attempts = true,
  headers = true, operation = true, max_wait = true, unique_for = true, format = true, max_body = true, shards = true,
}
local LISTED = 'delay, at, key, if_exists, priority, expires_in, max_attempts, headers, operation, max_wait, unique_for, format, max_body, shards'
local LEVELS = {high = '0', normal = '1', low = '2'}
local IF_EXISTS = {keep = 'keep', error = 'error', replace = 'replace', later = 'later', merge = 'merge'}
local FORMATS = {json = 'json', bytes = 'bytes'}
local OUTCOMES = {c = 'created', k = 'kept', r = 'replaced', p = 'postponed', d = 'duplicate', m = 'merged'}

local function options()
  local found = {}
  for i = 3, #ARGV, 2 do
    local name, value = ARGV[i], ARGV[i + 1]
    if not OPTIONS[name] then
      bad('There is no option %s. After the topic and the body come names and values: %s.', quoted(name), LISTED)
    end
    if not value then bad('The option %s has no value.', name) end
    if found[name] then bad('The option %s is given twice.', name) end
    found[name] = value
  end
  return found
end

local function check_topic(topic)
  if not topic then bad('Give a topic and a body, and then options.') end
  if not string.find(topic, '^[%w._-]+$') or #topic > 128 then
    bad('The topic is %s. A topic is 1 to 128 characters of A-Z a-z 0-9 . _ - as in order.cancel.', quoted(topic))
  end
  return topic
end

local function check_body(body, how, most)
  if #body > most then
    bad('The body is %d bytes and the limit is %d. Store it elsewhere and send its address, or give max_body, '
      .. 'if the queue in Python has such a max_body, too.', #body, most)
  end
  if one_of('format', how, FORMATS) == 'json' and not is_json(body) then
    bad('The body is not JSON. A text is "text", with its quotes. For a queue with a codec= of its own, add: format bytes.')
  end
  return body
end

local function check_headers(text)
  local read, found = pcall(cjson.decode, text)
  if not read or type(found) ~= 'table' or not string.find(text, '^%s*{') or not is_json(text) then
    bad('headers is not a JSON object of texts, such as {"trace": "7f3a"}.')
  end
  local size = 0
  for name, value in pairs(found) do
    if name == '' or type(name) ~= 'string' or type(value) ~= 'string' then
      bad('headers is not a JSON object of texts, such as {"trace": "7f3a"}.')
    end
    size = size + #name + #value
  end
  if size > 8192 then bad('The headers are %d bytes and the limit is 8192. Put large things into the body.', size) end
  return found
end

-- As JSON of bide's own, so that no receiver stumbles over it. With max_wait it begins with a time that is not known yet.
local function headers_of(told)
  local found = told.headers and check_headers(told.headers) or {}
  if told.max_wait then found['bide-first'] = nil end
  local text = next(found) and cjson.encode(found) or ''
  if not told.max_wait then return text end
  return '{"bide-first":"0000000000000"' .. (text == '' and '}' or ',' .. string.sub(text, 2))
end

local function check_operation(text)
  check_name('operation', text, 128)
  if string.find(text, '^~%d+%.%x+%.%d+#%d+$') then bad('operation is a name that bide makes itself. Give another one.') end
  return text
end

local function when(told)
  if told.delay and told.at then bad('Give delay or at, not both.') end
  return told.at and format('@%d', instant(told.at)) or format('%d', told.delay and duration('delay', told.delay) or 0)
end

-- What if_exists says, and what more.
local function rule(told, most)
  local how = one_of('if_exists', told.if_exists or 'keep', IF_EXISTS)
  if how == 'merge' and (not told.key or told.unique_for or told.max_wait or told.format == 'bytes') then
    bad('if_exists merge makes a list of JSON bodies: give it with key, and without unique_for, max_wait and format bytes.')
  end
  if how == 'merge' then return format('%s %d', how, most) end
  if told.unique_for then
    local period = duration('unique_for', told.unique_for)
    if not told.key or how ~= 'keep' and how ~= 'error' or told.max_wait then
      bad('unique_for says how long a key is sent once: give it with key, and if_exists keep or error.')
    end
    if period == 0 then bad('unique_for is 0: leave it out, or give it time.') end
    return format('%s %d', how, period)
  end
  if not told.max_wait then return how end
  local longest = duration('max_wait', told.max_wait)
  if not told.key or how ~= 'later' then
    bad('max_wait is for messages that each send moves later: give it with key and if_exists later.')
  end
  if longest == 0 or told.delay and duration('delay', told.delay) > longest then
    bad('max_wait is less than delay: the first message would be too late already. Give it more time.')
  end
  return format('%s %d', how, longest)
end

local function message()
  local told = options()
  if told.key then check_name('key', told.key, 256) end
  local most = told.max_body and count('max_body', told.max_body, 268435456) or 262144
  local expires = told.expires_in and duration('expires_in', told.expires_in)
  if expires == 0 then bad('expires_in is 0: the message would expire the moment it is due. Leave it out, or give it time.') end
  return {
    topic = check_topic(ARGV[1]),
    body = told.if_exists == 'merge' and '[' .. check_body(ARGV[2] or 'null', told.format or 'json', most - 2) .. ']'
      or check_body(ARGV[2] or 'null', told.format or 'json', most),
    when = when(told),
    key = told.key or '',
    if_exists = rule(told, most),
    level = one_of('priority', told.priority or 'normal', LEVELS),
    expires = expires,
    attempts = told.max_attempts and count('max_attempts', told.max_attempts, 1000) or 3,
    headers = headers_of(told),
    operation = told.operation and check_operation(told.operation) or '',
    shards = told.shards and count('shards', told.shards, 64),
    now = told.now or '',
    within = told.within or '',
  }
end

-- What is written of a message, and the body that has a key of its own, if it is long.
local function content(new)
  local flags, parts, tail = string.byte(new.when) == 64 and 32 or 0, {}, new.body -- an instant begins with @
  local function add(flag, ...)
    flags = flags + flag
    for _, part in ipairs({...}) do parts[#parts + 1] = part end
  end
  if new.attempts ~= 3 then add(1, struct.pack('>I2', new.attempts)) end
  if new.expires then add(2, struct.pack('>I6', new.expires)) end
  if new.key ~= '' then add(4, #new.key < 255 and string.char(#new.key) or struct.pack('>BI2', 255, #new.key), new.key) end
  if new.headers ~= '' then
    flags = flags + 8
    tail = struct.pack('>I4', #new.headers) .. new.headers .. tail
  end
  local head = table.concat(parts)
  if #tail > 1024 then return string.char(flags + 16) .. head, tail end
  return string.char(flags) .. head .. tail, ''
end

local SAFE = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'

-- An id as it is shown: base64 for URLs.
local function shown_id(raw)
  return (string.gsub(raw, '...', function(three)
    local bits, letters = struct.unpack('>I3', three), {}
    for i = 4, 1, -1 do
      local at = bits % 64 + 1
      letters[i], bits = string.sub(SAFE, at, at), (bits - at + 1) / 64
    end
    return table.concat(letters)
  end))
end
