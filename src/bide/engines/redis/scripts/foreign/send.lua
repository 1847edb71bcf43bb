-- Sends one message to a queue of bide on Redis, from a program in any language, with the options of `send` in Python.
--
-- KEYS: {bide:0}:meta and {bide:0}:- for the namespace `bide`.
-- ARGV: topic, body, and then options, each a name and a value: delay or at, key, if_exists, priority, expires_in,
-- max_attempts, headers, operation, max_wait, unique_for, format, max_body, shards.
-- Gives: the message's id, when it is due (ms since 1970), and created, kept, replaced, postponed, merged or duplicate.
-- An error begins with a word that says what to do. OTHERSHARD key key: call again with these two keys. BADOPTION, EXISTS,
-- NOQUEUE, BADLAYOUT, NORIGHT: a sentence follows; nothing was sent.
--
-- docs/languages.md has examples. The script refuses a queue with a layout that it does not know.

local function put(ARGV)
-- run: put_ruled
end

-- include: values content shards

local UNLIMITED = '9007199254740991'

local WHY = {
  TOOFAR = 'BADOPTION A message can\'t be due more than a hundred years from now.',
  NORIGHT = 'NORIGHT The user may not call %s: nothing was sent. `bide doctor --acl` prints the rights that a sender needs.',
}

local function salt()
  local time = redis.call('TIME')
  local hash = redis.sha1hex(table.concat({time[1], time[2], KEYS[1], ARGV[1]}, ' '))
  return string.char(tonumber(string.sub(hash, 1, 2), 16), tonumber(string.sub(hash, 3, 4), 16))
end

local function send()
  local new = message()
  local here = arrive(new)
  local blob, large = content(new)
  local reply = put({
    new.now, '0', '', '0', salt(), here.shards, UNLIMITED, format('%d', LONGEST), '0', '1',
    new.topic, new.level, new.when, blob, new.key, new.if_exists, new.operation, large, new.within,
  })
  if reply.err then return reply end
  local digits, told = unpack(reply[5])
  local letter = string.sub(told, 1, 1)
  if letter == 'a' then return redirect(here, here.asked + 1, new) end
  local id = shown_id(string.char(here.number) .. struct.pack('>I5', tonumber(digits, 16)) .. string.sub(told, 2, 13))
  local due = struct.unpack('>I6', told, 14)
  if letter == 'e' then refuse('EXISTS', format('%s %d Another message of this topic has this key.', id, due)) end
  return {id, due, OUTCOMES[letter]}
end

local done, told = pcall(send)
if done and not told.err then return told end
local text = type(told) == 'table' and told.err or told -- each version of Redis throws errors in a form of its own
text = string.gsub(text, '^@?user_script: ?%d+: ', '')
local code, name = string.match(text, '^(%u+) ?(%w*)$')
if WHY[code or ''] then text = format(WHY[code], name) end
return redis.error_reply(string.find(text, '^%-?%u+ ') and text or 'ERR ' .. text)
