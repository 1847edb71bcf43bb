-- What stands at the end of a message: its headers and its body.

local tails = {}

-- Where in a message, whose flags are at `at`, its headers and its body begin.
function tails.at(text, at)
  local flags = byte(text, at)
  at = at + 1
  if has(flags, FLAG.attempts) then at = at + 2 end
  if has(flags, FLAG.expires) then at = at + 6 end
  if has(flags, FLAG.keyed) then
    local length
    length, at = byte(text, at), at + 1
    if length == 255 then length, at = unpack_('>I2', text, at) end
    at = at + length
  end
  return at
end

-- Headers and body of a message that is stored.
function tails.of(topic, id, value)
  if has(flags_of(id, value), FLAG.large) then return call('GET', large_of(topic, id)) or '' end
  return sub(value, tails.at(value, FLAGS_AT[sort_of(id)]))
end

-- Where in headers and body the body begins.
function tails.body_at(flags, tail) return has(flags, FLAG.headers) and 5 + unpack_('>I4', tail) or 1 end
