-- When messages expire, of the whole shard. Who finds a message looks at what is written of it; this is for tend, which removes
-- those that nobody looks at. So an entry may be left that is of no use: of a message that has ended, or expires later.
--
-- A cluster moves each key to another node as a whole, and both nodes wait for that. So the entries are spread over PARTS sorted
-- sets, by where the message lives: `exp:` and a number. `exp:next` has for each of them a time before which nothing in it
-- expires. That time may be too early, but never too late. Releases before had all entries in `exp`.

-- These functions are made when the first is called: most scripts meet no message that expires.
local expiries = setmetatable({}, {__index = function(expiries, name)
  local PARTS = 127
  local EXPIRIES, NEXT_EXPIRY = P .. 'exp', P .. 'exp:next'

  -- The messages of a list have the same part. Lists that stand side by side, or at even distances, have different ones.
  local function part_of(full)
    local number, _, slot, n = unpack_('>I5c1I6I3', full)
    local place = (number + slot * 64 + floor(n / BUCKET)) % 65521
    return format('%x', place * 40503 % 65521 % PARTS)
  end

  function expiries.key_of(part) return EXPIRIES .. ':' .. part end

  -- A release before may have noted it elsewhere, unless the message is new.
  function expiries.note_one(full, at, fresh)
    local part = part_of(full)
    local added = call('ZADD', expiries.key_of(part), at, full)
    call('ZADD', NEXT_EXPIRY, 'LT', at, part)
    need_upkeep(at)
    if added == 1 and not fresh then call('ZREM', EXPIRIES, full) end
  end

  function expiries.expect(topic)
    if topic.f.expires == 0 then set(topic, 'expires', 1) end
  end

  function expiries.note_of(topic, id, at)
    expiries.expect(topic)
    expiries.note_one(full_of(topic, id), at)
  end

  -- Times and full ids by turns, up to two thousand. `fresh`: all are of new messages.
  function expiries.note(flat, fresh)
    if #flat == 2 then return expiries.note_one(flat[2], flat[1], fresh) end
    local groups, fulls, firsts, added, earliest = {}, {}, {}, 0, math.huge
    for i = 1, #flat, 2 do
      local part = part_of(flat[i + 1])
      local group = groups[part] or {first = math.huge}
      groups[part], group[#group + 1], group[#group + 2] = group, flat[i], flat[i + 1]
      group.first = math.min(group.first, flat[i])
      fulls[#fulls + 1] = flat[i + 1]
    end
    for part, group in pairs(groups) do
      added = added + call('ZADD', expiries.key_of(part), unpack(group))
      firsts[#firsts + 1], firsts[#firsts + 2] = group.first, part
      earliest = math.min(earliest, group.first)
    end
    call('ZADD', NEXT_EXPIRY, 'LT', unpack(firsts))
    need_upkeep(earliest)
    if added > 0 and not fresh then call('ZREM', EXPIRIES, unpack(fulls)) end
  end

  function expiries.forget(full)
    if call('ZREM', expiries.key_of(part_of(full)), full) == 0 then call('ZREM', EXPIRIES, full) end
  end

  -- Note when the first of a part expires, or that it is empty.
  function expiries.note_first(part)
    local first = call('ZRANGE', expiries.key_of(part), 0, 0, 'WITHSCORES')[2]
    if first then
      call('ZADD', NEXT_EXPIRY, first, part)
    else
      call('ZREM', NEXT_EXPIRY, part)
    end
  end

  function expiries.note_all_parts()
    for _, part in ipairs(call('ZRANGE', NEXT_EXPIRY, 0, -1)) do expiries.note_first(part) end
  end

  return rawget(expiries, name)
end})
