-- script: claim
-- Hand out due messages under one lease. After what every script is told: who asks (8 letters), request, lease in ms,
-- limit, of how many topics room is kept, whether a token may have woken it, then topics, beginning with these.
-- Gives: now, when to come back ('' for never), whether more was there than one script may do, the claim's number, the
-- full ids in one string, the values, of what has more beside its value: position, life, large body, when its first attempt
-- began; of each topic: its number, name; up to when no upkeep is needed; now in µs; the server's clock in ms; and, when this
-- request has claimed before, the positions of what it still holds.

-- include: begin layout topics wake keys holding expiries finish leases open take

local FAR = math.huge
local WAKES = 100 -- topics that one claim wakes others for, or looks into when it is repeated

-- The topics of these names that there are, each with a time before which nothing of it is due; and those of them of which
-- something may be due now.
local function read_agenda(names, keep)
  local agenda, begun = {}, {}
  for i, known in ipairs(#names > 0 and call('HMGET', P .. 'topics', unpack(names)) or {}) do
    if known then
      local digits, due = noted(known)
      local entry = {name = names[i], digits = digits, due = due, taken = 0, kept = i <= keep}
      if entry.due >= NEVER then entry.due = FAR end
      agenda[#agenda + 1] = entry
      if entry.due <= now then begun[#begun + 1] = entry end
    end
  end
  return agenda, begun
end

-- The level whose turn it is: of those with something due the highest, or the one that has waited longest. A level that
-- was not looked into may have something.
local function level_in_turn(topic, levels, due, eldest)
  local chosen
  for _, level in ipairs(levels) do
    if eldest and not due[level] then
      local _, first = take(topic, level, 0, 0)
      due[level] = first
    end
    if not due[level] or due[level] <= now and not (chosen and due[chosen] <= due[level]) then
      chosen = level
      if not eldest then return chosen end
    end
  end
  return chosen
end

-- One message in eight is to what has been due longest, whatever its level.
local function take_in_turn(topic, levels, limit)
  local count, due = 0, {}
  while count < limit and not exhausted() do
    local turn = topic.f.turn % 8
    local level = level_in_turn(topic, levels, due, turn == 7)
    if not level then break end
    local looked = due[level]
    local got, first = take(topic, level, turn == 7 and 1 or math.min(7 - turn, limit - count), math.min(BUCKET, limit - count))
    due[level] = first
    if got > 0 or looked then set(topic, 'turn', turn + math.max(got, 1)) end
    count = count + got
  end
  local earliest = FAR
  for _, level in ipairs(levels) do earliest = math.min(earliest, due[level] or now) end
  return count, earliest
end

local function take_from(topic, limit)
  local levels = {}
  for level = 0, 2 do
    if topic.f['l' .. level] > 0 then levels[#levels + 1] = level end
  end
  if #levels == 0 then return 0, FAR end
  if #levels == 1 then return take(topic, levels[1], limit, 0) end
  return take_in_turn(topic, levels, limit)
end

-- When something of a topic may be due: what is near, and the start of the next slot.
local function next_start(topic)
  local earliest = FAR
  for level = 0, 2 do
    if topic.f['l' .. level] > 0 then
      for _, kind in ipairs(calendars_of(topic, level)) do
        earliest = math.min(earliest, first_slot(topic, kind) * SLOT[sort_of(kind)])
      end
    end
  end
  return earliest
end

-- Of each that has more than its value: position, life, large body, when its first attempt began. Few have told that: where
-- they lie in what is told is noted by topic, and then all of a topic are read at once.
local function told_beside()
  local beside, begun = {}, {}
  for i = 1, T.count do
    local topic, life, large = T.topics[i], T.lives[i], T.large[i]
    if life or large then
      local at = #beside
      beside[at + 1], beside[at + 2], beside[at + 3], beside[at + 4] = i, life and life_text(life) or '', large or '', ''
      if life and has(life.marks, 4) then
        local of_topic = begun[topic] or {fields = {}, lives = {}, places = {}}
        local count = #of_topic.fields + 1
        begun[topic] = of_topic
        of_topic.fields[count], of_topic.lives[count], of_topic.places[count] = T.ids[i] .. 'b', life, at + 4
      end
    end
  end
  for topic, some in pairs(begun) do
    local texts = call('HMGET', topic.prefix .. 'life', unpack(some.fields))
    for i = 1, #some.fields do
      local began = began_from(texts[i], some.lives[i])
      if began then beside[some.places[i]] = format('%d', began) end
    end
  end
  return beside
end

local function reply_with(number, fulls, due, more)
  local named, seen = {}, {}
  for i = 1, T.count do
    local topic = T.topics[i]
    if not seen[topic] then
      seen[topic] = true
      named[#named + 1], named[#named + 2] = topic.digits, topic.name
    end
  end
  local when = due == FAR and '' or format('%d', due)
  return {format('%d', now), when, more and 1 or 0, number, fulls, T.values, told_beside(), named, format('%d', upkeep), format('%d', us), wall}
end

local function hand_out_again(held)
  local fulls, positions = {}, {}
  for position = 1, #held.states do
    if held.states[position] ~= ENDED then
      local full = full_at(held, position)
      local digits, id = parts_of(full)
      local topic = load(digits)
      local value = topic and read(topic, id)
      if value then
        fulls[#fulls + 1], positions[#positions + 1] = full, position - 1
        add_taken(topic, id, value, life_of(topic, id), flags_of(id, value))
      end
    end
  end
  local reply = reply_with(held.number, table.concat(fulls), FAR, false)
  reply[12] = positions
  return reply
end

-- Lease what was taken; gives the full ids.
local function lease(request, number, until_)
  local states, fulls, ids, tops, lives, flags = {}, {}, T.ids, T.topics, T.lives, T.flags
  for i = 1, T.count do
    fulls[i] = tops[i].head .. ids[i]
    local some = flags[i] % FLAG.instant
    local plain = some < 2 or some - some % 2 == FLAG.headers -- attempts, headers and instants need no care
    states[i] = (plain and not lives[i]) and SIMPLE or OTHER
  end
  local text = table.concat(fulls)
  call('HSET', P .. 'held', request, number .. text)
  call('HSET', P .. 'open', request, char(unpack(states)))
  call('ZADD', P .. 'lease', format('%d', until_), request)
  need_upkeep(until_)
  return text
end

-- When something of a topic is due, without taking any of it.
local function soonest(topic)
  if topic.f.paused ~= 0 then return FAR end
  local due = next_start(topic)
  for level = 0, 2 do
    local row = kind_of(level, READY)
    if topic.f['b' .. row] - topic.f['p' .. row] > topic.f['g' .. row] then return now end
    due = math.min(due, first_near(topic, level))
  end
  return due
end

-- Take up to so many from a topic of which something may be due.
local function visit(entry, most)
  spent = spent + 2 / LIGHT
  entry.topic = load(entry.digits)
  entry.due = FAR
  if not entry.topic or entry.topic.f.paused ~= 0 then return end
  local count, due = take_from(entry.topic, most)
  entry.taken = entry.taken + count
  entry.due = math.min(due, next_start(entry.topic))
end

-- Each has its share, in the order in which the client names them, and then there may be room for more of the same. Of
-- topics that have room kept the first message takes that room, and all others share what is not kept.
local function take_from_all(begun, limit, keep)
  local share, free = math.max(1, floor(limit / math.max(1, #begun))), limit - keep
  for _, most in ipairs(limit > 0 and {share, limit} or {0}) do
    for _, entry in ipairs(begun) do
      if exhausted() or T.count > 0 and T.count >= limit then return end
      local own = entry.kept and entry.taken == 0 and 1 or 0
      if entry.due <= now and (free + own > 0 or limit == 0) then
        local before = entry.taken
        visit(entry, math.min(most, free + own))
        free = free - math.max(0, entry.taken - before - own)
      end
    end
  end
end

-- After it: the topic that is due next, and whether some are due now. Others are woken for these.
local function leave_behind(agenda, woken)
  local following, left, idle = {due = FAR}, 0, {}
  for _, entry in ipairs(agenda) do
    if entry.due <= now then
      left = left + 1
      if left <= WAKES then push_token(entry.name) end
    else
      idle[#idle + 1] = P .. 'w:' .. entry.name
      local first = math.min(entry.due, NEVER)
      if entry.topic and entry.taken == 0 and entry.topic.f.next ~= first then set(entry.topic, 'next', first) end
    end
    if entry.due < following.due then following = entry end
  end
  -- a caller that got nothing knows by now what a token would have told it; one that was not woken by a token left none
  if woken and T.count == 0 and #idle > 0 then call('UNLINK', unpack(idle)) end
  return following, left > 0
end

-- What the request holds since it claimed before, and when to come back.
local function claim_again(held, agenda)
  local reply = held and hand_out_again(held) or reply_with('', '', FAR, false)
  local due = FAR
  for i, entry in ipairs(agenda) do
    local topic = entry.due <= now and i <= WAKES and load(entry.digits)
    due = math.min(due, topic and soonest(topic) or entry.due)
  end
  if due < FAR then reply[2] = format('%d', due) end
  return reply
end

local function claim(asked, agenda, begun)
  call('HDEL', META, '-') -- it allocates nothing, and after it a full server lets a script write
  if unknown then store_time() end
  note_run()
  take_from_all(begun, asked.limit, asked.keep)
  local following, left = leave_behind(agenda, asked.woken)
  local due = following.due
  if T.count > 0 then
    hand_on(asked.me, asked.names)
  elseif due < FAR and due > now then
    due = alarm(asked.me, following, due)
  end
  local number, fulls = '', ''
  if T.count > 0 then
    local last = tonumber(call('HGET', META, 'claim') or 0)
    number = format('%016d', math.max(last + 1, us, (known + 1) * 1000)) -- no earlier one, even if the server forgot some
    call('HSET', META, 'claim', number, 'raw', format('%d', raw), 'mark', format('%d', us))
    fulls = lease(asked.request, number, now + asked.lease)
  end
  close_topics()
  return reply_with(number, fulls, due, left and exhausted() and T.count < asked.limit)
end

-- Nothing is due: what an idle receiver asks for again and again, so it makes as few calls as it can.
local function find_nothing(asked, agenda)
  note_look()
  local following = leave_behind(agenda, asked.woken)
  local due = following.due
  if due < FAR then due = alarm(asked.me, following, due) end
  return tell(reply_with('', '', due, false))
end

local refused, ran = before()
if refused then return refused end
local asked = {me = take_text(), request = take_text(), lease = take_number(), limit = take_number(), keep = take_number()}
asked.woken = take_number() == 1
if #asked.me ~= 8 or asked.request == '' or asked.limit > 1000 or asked.keep > asked.limit then
  error('BADARG request or limit', 0)
end
asked.names = {unpack(ARGV, NEXT + 1, #ARGV)}
local agenda, begun = read_agenda(asked.names, asked.keep)
local held = claim_of(asked.request)
if held or ran then return claim_again(held, agenda) end
if #begun == 0 then return find_nothing(asked, agenda) end
return claim(asked, agenda, begun)
