-- What is stored.

-- include: begin layout topics walk

-- script: get
-- Tell what is stored. After what every script is told: how many, and of each what names it (four arguments; without a salt
-- it is shown as it is, expired or not). Gives: now, then of each nothing, or the topic's name and: its number, id, value,
-- state (with the time at which it is looked at again, if that is not its due time), life, large body, and, of one that is named, the records of its attempts, if there are any. What would be too much at once is left out at the end: it is to be asked for again.

-- include: keys pending

-- All that is to be told of a message: its topic's number, id, value, state, life, large body.

local shown_bytes, FULL = 0, 1048576 -- told by this script, and how much is enough

local function shown(topic, id, value, life, state)
  local text, large = life and life_text(life) or '', ''
  if has(flags_of(id, value), FLAG.large) then large = call('GET', large_of(topic, id)) or '' end
  shown_bytes = shown_bytes + #value + #text + #large
  return {topic.digits, id, value, state, text, large}
end

local function get(ref)
  local topic = ref.how == 'id' and load(ref.topic) or ref.how == 'key' and find_topic(ref.topic)
  if not topic then return {} end
  local id, value = ref.id, nil
  if ref.how == 'key' then id, value = index.holder(topic, ref.id) end
  value = id and (value or read(topic, id))
  local as_it_is = ref.how == 'id' and ref.salt == ''
  if not value or (ref.how == 'id' and not as_it_is and sub(value, 1, 2) ~= ref.salt) then return {} end
  local life = life_of(topic, id)
  local state, score = state_of(topic, id, life)
  if (state == 'far' or state == 'near') and not as_it_is and expired(id, value, life) then return {} end
  -- an instant that waits for the clock lies where it is looked at again
  local again = score and tonumber(score) ~= (life and life.due or born_due(id, value))
  local told = shown(topic, id, value, life, again and state .. ' ' .. score or state)
  if life and has(life.marks, 2) and not as_it_is then
    told[7] = call('GET', large_of(topic, id) .. ':t') or nil
    shown_bytes = shown_bytes + #(told[7] or '')
  end
  return {topic.name, told}
end

local reply = {format('%d', now)}
for i = 1, take_number() do
  if i > 1 and (tired() or shown_bytes >= FULL) then break end
  reply[i + 1] = get(take_ref())
  worked = worked + 5
end
return tell(reply)

-- script: lease_ends
-- Tell by what messages are leased. After what every script is told: the cursor of the last script ('0' at first), then
-- the messages' full ids. Gives: now, the cursor to go on from ('0' when there is nothing more to find), and of each that
-- was found its full id, the end of its lease, and its claim's request and number.

-- include: leases

local cursor, wanted, left, found = take_text(), {}, 0, {}
while NEXT < #ARGV do
  wanted[take_text()] = true
  left = left + 1
end
cursor = each_claim(cursor, function(claim)
  for position = 1, #claim.states do
    local full = full_at(claim, position)
    if wanted[full] and claim.states[position] ~= ENDED then
      found[#found + 1], found[#found + 2] = full, format('%d', lease_end(claim, position))
      found[#found + 1], found[#found + 2] = claim.request, claim.number
      wanted[full], left = nil, left - 1
    end
  end
end)
return tell({format('%d', now), left == 0 and '0' or cursor, found})

-- script: scan
-- Find the first messages of a topic behind a mark, in order. After what every script is told: the time to look at ('' for
-- now), topic, state ('' for scheduled and ready), how many, the mark (an instant; and the id behind which those of that
-- instant are, or ''), the last instant ('' for none), and where the last script stopped: source, slot, number (0 at first).
-- Gives: now, the topic's number ('' when there is none), the first that this script has met (instant, 0, id), and where it
-- stopped, unless it came to the end. Sources are what is near, the ready row and each calendar, of each level.

-- include: first

local as_of, name, state = take_text(), take_text(), take_text()
as_of = as_of == '' and now or number(as_of)
local most, from, id, to = take_number(), take_number(), take_text(), take_text()
local source, slot, n = take_number(), take_number(), take_number()
to = to == '' and 9007199254740991 or number(to)
if state == 'ready' then to = math.min(to, as_of) end
if state == 'scheduled' and from <= as_of then from, id = as_of + 1, '' end
look_for(most, from, id, to)

-- The rank in a zset of what comes behind the mark.
local function rank_behind(key)
  local first = call('ZCOUNT', key, '-inf', '(' .. format('%d', low))
  if not after then return first end
  local last = call('ZCOUNT', key, '-inf', format('%d', low))
  while first < last do
    local middle = floor((first + last) / 2)
    if follows(call('ZRANGE', key, middle, middle)[1]) then last = middle else first = middle + 1 end
  end
  return first
end

local function find_sorted(key)
  local at = rank_behind(key)
  local found = call('ZRANGE', key, at, at + limit - 1, 'WITHSCORES')
  worked = worked + 20 + #found
  for i = 1, #found, 2 do consider(tonumber(found[i + 1]), found[i]) end
end

-- A number of the row with nothing before it that is behind the mark.
local function seek(topic, row)
  if after and after.kind == row.kind then
    local _, high_part, low_part = location(after.id)
    return math.max(row.first, high_part * ROW + low_part + 1)
  end
  local first, last = row.first, row.births
  while low > 0 and last - first > 4 * BUCKET do
    local middle, due, at = floor((first + last) / 2), nil, nil
    local some = {kind = row.kind, births = math.min(last, middle + 4 * BUCKET), gone = row.gone}
    look_along(topic, some, middle, function(value, number)
      due, at = due_from(0, READY, value), number
      return false
    end)
    if due and due < low then first = at + 1 else last = middle end
  end
  return first
end

-- A row is in due order. These give where they stopped, or nothing.
local function find_in_row(topic, level)
  local row, count = ready_of(topic, level), 0
  if row.count == 0 then return end
  if n == 0 then
    n = seek(topic, row)
    looks = 0 -- so that one bucket at least is read from there
  end
  local over = false
  local got = look_along(topic, row, math.max(n, row.first), function(value, at)
    local due = due_from(0, READY, value)
    if consider(due, id_of(row.kind, floor(at / ROW), at % ROW)) then count = count + 1 end
    over = count >= limit or due > high
    return not over
  end)
  if not over and got < row.births then return 0, got end
end

-- All of a slot of one millisecond is due at once, in the order of sending: only those are read that are wanted.
local function find_in_slot(topic, at, from_n)
  local single, count, over = at.stop - at.start == 1, 0, false
  if single and after and at.start == low then
    local head = rank(id_of(at.kind, at.slot, 0))
    if after.head > head then return at.births end
    if after.head == head then from_n = math.max(from_n, after.n + 1) end
  end
  local got = look_in(topic, at, from_n, function(value, number)
    local due = due_in(at, value)
    if due >= low and due <= high and consider(due, id_of(at.kind, at.slot, number)) then count = count + 1 end
    over = single and count >= limit
    return not over
  end)
  return over and at.births or got
end

local function find_in_slots(topic, kind)
  local length, number_in_slot = SLOT[sort_of(kind)], n
  local stopped = each_slot(topic, kind, math.max(slot, floor(low / length)), function(at)
    if at.start > high then return math.huge end
    local got = find_in_slot(topic, at, math.max(at.first, at.slot == slot and n or 0))
    if got < at.births then
      number_in_slot = got
      return nil
    end
    cut()
    number_in_slot = 0
    return at.slot + 1
  end)
  if stopped then return stopped, number_in_slot end
end

local SOURCES = FINEST + 3 -- of a level

local function find_in_source(topic)
  local level, which = floor(source / SOURCES), source % SOURCES
  if topic.f['l' .. level] == 0 then return end
  if which == 0 then return find_sorted(topic.prefix .. 'due' .. level) end
  if which > 1 then return find_in_slots(topic, kind_of(level, which - 2)) end
  if state ~= 'scheduled' then return find_in_row(topic, level) end
end

local function find_pending(topic)
  while source < 3 * SOURCES do
    local stopped_slot, stopped_n = find_in_source(topic)
    cut()
    if stopped_slot then return {source, format('%d', stopped_slot), stopped_n} end
    source, slot, n = source + 1, 0, 0
    if tired() and source < 3 * SOURCES then return {source, 0, 0} end
  end
  return {}
end

local topic = find_topic(name)
if not topic then return tell({format('%d', now), '', '', {}}) end
local stopped = {}
if state == 'dead' then find_sorted(topic.prefix .. 'dead') else stopped = find_pending(topic) end
return tell({format('%d', now), topic.digits, candidates(), stopped})

-- script: leased
-- Find the first leased messages of a topic behind a mark, in due order. After what every script is told: topic, how many,
-- the mark (an instant, and an id or ''), the last instant ('' for none), and the cursor of the last script ('0' at first).
-- Gives: now, the topic's number ('' when there is none), the first that this script has met (due, end of lease, id), the
-- cursor to go on from, in a list, unless it came to the end, and of each its claim's request and number.

-- include: leases first

local name, most, from, id, to, cursor = take_text(), take_number(), take_number(), take_text(), take_text(), take_text()
look_for(most, from, id, to == '' and 9007199254740991 or number(to))
local positions = {} -- by id: claim, and position in it

-- Whether all of a slot is due before or behind what is looked for.
local function beside(local_id)
  local kind, slot = location(local_id)
  local length = SLOT[sort_of(kind)]
  return length and (slot * length > high or slot * length + length <= low)
end

local function find_in_claim(topic, claim)
  local mine, lives = {}, {}
  for position = 1, #claim.states do
    if claim.states[position] ~= ENDED then
      local full = full_at(claim, position)
      if sub(full, 1, TOPIC) == topic.head then
        local local_id = sub(full, TOPIC + 1)
        mine[#mine + 1] = local_id
        positions[local_id] = {claim, position}
      end
    end
  end
  if #mine > 0 and has_life(topic) then lives = call('HMGET', topic.prefix .. 'life', unpack(mine)) end
  worked = worked + 4 * #mine
  for i, local_id in ipairs(mine) do
    if lives[i] then
      consider(unpack_('>I6', lives[i]), local_id)
    elseif not beside(local_id) then
      local value = read(topic, local_id)
      worked = worked + 4
      if value then consider(born_due(local_id, value), local_id) end
    end
  end
end

local topic = find_topic(name)
if not topic then return tell({format('%d', now), '', '', {}}) end
cursor = each_claim(cursor, function(claim) find_in_claim(topic, claim) end)
local held = {}
local found = candidates(function(local_id)
  local claim, position = unpack(positions[local_id])
  held[#held + 1], held[#held + 2] = claim.request, claim.number
  return lease_end(claim, position)
end)
return tell({format('%d', now), topic.digits, found, cursor ~= '0' and {cursor} or {}, held})
