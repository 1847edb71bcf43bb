-- Of all the messages that come by, the first `limit` behind a mark, in due order; those of one due time by their ids,
-- which is the order of sending in each slot and row.

local dues, ids, many = {}, {}, 0
local limit, low, high, after -- how many, from which due time to which, and the id behind which those of the first are
local last -- the id before which those of the last due time are, once some of them were cut

-- An id as two numbers: the server's locale may put texts into an order of its own.
local function rank(id)
  local kind, slot, n = location(id)
  return (byte(kind) - FIRST) * 281474976710656 + slot, n
end

local function ranked(id)
  local found = {id = id, kind = sub(id, 1, 1)}
  found.head, found.n = rank(id)
  return found
end

local function is_behind(id, other)
  local head, n = rank(id)
  return head > other.head or (head == other.head and n > other.n)
end

local function follows(id) return not after or is_behind(id, after) end

local function look_for(most, from, id, to)
  limit, low, high = most, from, to
  if id ~= '' then after = ranked(id) end
end

-- The first of so many ids.
local function first_of(some, count)
  local heads, groups, found = {}, {}, {}
  for _, id in ipairs(some) do
    local head, n = rank(id)
    local group = groups[head]
    if not group then
      group = {ids = {}}
      groups[head], heads[#heads + 1] = group, head
    end
    group[#group + 1], group.ids[n] = n, id
  end
  table.sort(heads)
  for _, head in ipairs(heads) do
    local group = groups[head]
    table.sort(group)
    for _, n in ipairs(group) do
      if #found == count then return found end
      found[#found + 1] = group.ids[n]
    end
  end
  return found
end

-- Keep the first `limit`; what comes behind the last of them is not wanted any more.
local function cut()
  if many <= limit then return end
  worked = worked + many
  local sorted = {unpack(dues, 1, many)}
  table.sort(sorted)
  if sorted[limit] < high then last = nil end
  high = sorted[limit]
  local ties, count = {}, 0
  for i = 1, many do
    if dues[i] < high then
      count = count + 1
      dues[count], ids[count] = dues[i], ids[i]
    elseif dues[i] == high then
      ties[#ties + 1] = ids[i]
    end
  end
  if #ties > limit - count then
    ties = first_of(ties, limit - count)
    last = ranked(ties[#ties])
  end
  for _, id in ipairs(ties) do
    count = count + 1
    dues[count], ids[count] = high, id
  end
  many = count
end

-- Whether it is one of them, as far as is known.
local function consider(due, id)
  if due < low or due > high or (due == low and not follows(id)) then return false end
  if last and due == high and is_behind(id, last) then return false end
  many, worked = many + 1, worked + 1
  dues[many], ids[many] = due, id
  if many >= 2 * limit + 100 then cut() end
  return true
end

-- Due time (or what else they are sorted by), the end of the lease (0 for none), and id of each, as one text.
local function candidates(until_of)
  cut()
  local found = {}
  for i = 1, many do found[i] = pack('>I6I6', dues[i], until_of and until_of(ids[i]) or 0) .. ids[i] end
  return table.concat(found)
end
