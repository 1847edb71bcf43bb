-- Messages that a caller names, and what sends say of the message that holds their key.

-- part: named
-- New messages of which some have a key, an operation, an expiry or a large body.

local IF_EXISTS = {keep = 'kept', error = 'exists', replace = 'replaced', later = 'postponed'}
local emptying = retiring()
local rules = {} -- what is said more of what holds a key, if anything: rules.lua

local function topic_for(name)
  if emptying then return find_topic(name) end
  return make_topic(name)
end

-- A put whose answer never came is asked after by the operation ~shard.lane.number#position. Its lane tells what became of
-- that message; or nothing became of it, and then the lane is closed to it, should it still arrive.
local function given_up_of(operation)
  local lane, last, position = string.match(operation, '^~%d+%.(%x+)%.(%d+)#(%d+)$')
  if not lane or #lane ~= 16 or #last > 14 or #position > 3 then return nil end -- it only looks like one of ours
  local record = remembered(lane)
  local reached = record and unpack_('>I6', record) or 0
  if reached > number(last) then error('OVERTAKEN', 0) end
  local reply = reached == number(last) and cmsgpack.unpack(sub(record, 7)) or nil
  return {lane = lane, last = number(last), position = number(position), reply = reply}
end

local function told_of(results)
  local told, parts = {}, {}
  for i, result in ipairs(results) do
    parts[#parts + 1] = sub(result[5], 1, 1) .. result[2] .. result[3] .. pack('>I6', result[4])
    local following = results[i + 1]
    if not following or following[1] ~= result[1] then
      told[#told + 1], told[#told + 2], parts = result[1], table.concat(parts), {}
    end
  end
  return told
end

-- Its time is no instant: it is past, or another time has come before it.
local function set_delayed(new)
  if not has(new.known.flags, FLAG.instant) then return end
  new.known.flags = new.known.flags - FLAG.instant
  new.blob = char(new.known.flags) .. sub(new.blob, 2)
end

local function take_others(longest)
  local others = {}
  for i = 1, take_number() do
    local new = {topic = take_text(), level = take_number(), when = take_text(), blob = take_text()}
    local due, instant = due_of(new.when, longest, now, ceiling, wall)
    new.due = due
    new.key, new.if_exists, new.operation = take_text(), take_text(), take_text()
    new.large, new.within = take_text(), take_text()
    new.holds = new.key ~= '' -- but for a dead letter of another queue
    if not IF_EXISTS[new.if_exists] and rules.take then rules.take(new) end
    if new.level > 2 or not IF_EXISTS[new.if_exists] and not new.largest or new.blob == '' then error('BADARG content', 0) end
    new.asked = given_up_of(new.operation)
    -- It belongs to its topic and key, and is remembered with them. No line break is in any of them.
    if new.operation ~= '' then new.operation = new.topic .. '\n' .. new.key .. '\n' .. new.operation end
    new.known = content(kind_of(0, READY), '........' .. new.blob) -- read as it would be in a row
    local flags = new.known.flags
    if flags > 63 or has(flags, FLAG.keyed) ~= (new.key ~= '') or has(flags, FLAG.large) ~= (new.large ~= '') then error('BADARG content', 0) end
    if not instant then set_delayed(new) end
    others[i] = new
  end
  return others
end

-- What is written of many at once: `expiring` has times and full ids by turns, `noted` operations and their records.
-- `expiring.stale` tells that some of these may be noted already.
-- `operations` has by name the records that there are, those that are still to be written, too.
local expiring, noted, operations = {}, {}, {}

local function write_expiring()
  for i = 1, #expiring, 2000 do expiries.note({unpack(expiring, i, math.min(i + 1999, #expiring))}, not expiring.stale) end
  expiring = {}
end

local function keep_beside(topic, id, new, since)
  if has(new.known.flags, FLAG.large) then call('SET', large_of(topic, id), new.large) end
  if new.known.expires then
    expiries.expect(topic)
    expiring[#expiring + 1], expiring[#expiring + 2] = since + new.known.expires, full_of(topic, id)
    if new.known.expires == 0 then write_expiring() end -- it has expired for the next of the batch, which may end it
  end
end

-- By name, what is remembered of the operations of these messages; false when nothing is.
local function learn_operations(others)
  local names = {}
  for _, new in ipairs(others) do
    if new.operation ~= '' and operations[new.operation] == nil then
      names[#names + 1], operations[new.operation] = new.operation, false
    end
  end
  for back = 0, 1 do
    for i = 1, #names, 1000 do
      local found = call('HMGET', of_epoch('ops', back), unpack(names, i, math.min(i + 999, #names)))
      for k = 1, #found do
        local name = names[i + k - 1]
        operations[name] = operations[name] or found[k]
      end
    end
  end
end

local function note_operation(new, result)
  if new.operation == '' then return end
  local record = pack('>I6', now) .. cmsgpack.pack(result)
  operations[new.operation] = record
  noted[#noted + 1], noted[#noted + 2] = new.operation, record
end

local function learn_keys(others)
  local keys = {}
  for _, new in ipairs(others) do
    if new.key ~= '' then
      local topic = topic_for(new.topic)
      if topic then
        keys[topic] = keys[topic] or {}
        table.insert(keys[topic], new.key)
      end
    end
  end
  for topic, some in pairs(keys) do index.learn(topic, some) end
end

-- Messages to be created gather, and are placed together: at the end, or before one comes that depends on them.
local created, gathered, results = {}, {}, {}

local function settle_created()
  local groups, order = {}, {}
  for _, new in ipairs(created) do
    local name = new.into.digits .. ':' .. new.level
    local group = groups[name]
    if not group then
      group = {topic = new.into, level = new.level, dues = {}, blobs = {}, news = {}}
      groups[name], order[#order + 1] = group, group
    end
    local at = #group.news + 1
    group.dues[at], group.blobs[at], group.news[at] = new.due, new.blob, new
  end
  for _, group in ipairs(order) do
    local ids = #group.dues == 1 and {place_one(group.topic, group.level, group.dues[1], group.blobs[1], true)}
      or place(group.topic, group.level, group.dues, group.blobs, true)
    local held = {}
    for at, new in ipairs(group.news) do
      keep_beside(group.topic, ids[at], new, waits(new.due, new.known.flags) and reached_at(new.due) or new.due)
      if new.holds then held[#held + 1], held[#held + 2] = new.key, ids[at] end
      results[new.at] = {group.topic.digits, ids[at], SALT, format('%d', new.due), 'created'}
      note_operation(new, results[new.at])
      if new.unique_for then rules.remember(new, results[new.at]) end
    end
    if #held > 0 then holding.hold_all(group.topic, held) end
    for at, new in ipairs(group.news) do
      if new.past then rules.live_through(group.topic, ids[at], new) end
    end
  end
  created, gathered = {}, {}
  write_expiring()
end

local put_other
do
  local OUTCOMES = {c = 'created', k = 'kept', e = 'exists', r = 'replaced', p = 'postponed', d = 'duplicate', m = 'merged'}
  local OUTCOME = 9 + ID -- bytes that tell what became of one

  local function became(asked, when)
    local reply, position = asked.reply, asked.position
    if not reply then
      remember(asked.lane, pack('>I6', asked.last) .. cmsgpack.pack({'VOID'}))
      return nil
    end
    local sections, others = reply[4], reply[5]
    if not sections then return nil end -- it was closed before
    for i = 1, #sections, 2 do
      local count = #sections[i + 1] / ID
      if position < count then
        local due = due_of(when, math.huge, number(reply[1]), number(reply[2]), number(reply[6] or reply[1]))
        return {sections[i], sub(sections[i + 1], ID * position + 1, ID * position + ID), reply[3], format('%d', due), 'created'}
      end
      position = position - count
    end
    local at = OUTCOME * position + 1
    for i = 1, #others, 2 do
      local told = others[i + 1]
      if at < #told then
        local due = unpack_('>I6', told, at + ID + 3)
        return {others[i], sub(told, at + 1, at + ID), sub(told, at + ID + 1, at + ID + 2), format('%d', due), OUTCOMES[sub(told, at, at)]}
      end
      at = at - #told
    end
  end

  local function replace(topic, id, value, state, life, new)
    local old, due = content(id, value), new.due
    if new.max_wait then due = rules.due_of(topic, id, value, life, new) end
    local instant = has(new.known.flags, FLAG.instant)
    if new.if_exists == 'later' then -- if one of the two is an instant, so is the later: rather late than early
      due = math.max(due, life and life.due or born_due(id, value))
      instant = due > wall and (instant or is_instant(id, value, life))
    end
    unschedule(topic, id, state, life)
    if old.expires and not new.known.expires then
      write_expiring() -- it may be among them
      expiries.forget(full_of(topic, id))
    end
    if has(old.flags, FLAG.large) then call('UNLINK', large_of(topic, id)) end
    if life and has(life.marks, 2) then call('UNLINK', large_of(topic, id) .. ':t') end
    local kind, slot, n = location(id)
    call('LSET', bucket_of(topic, kind, slot, n), n % BUCKET, sub(value, 1, FLAGS_AT[sort_of(kind)] - 1) .. new.blob)
    life = {due = due, since = instant and reached_at(due) or due, attempt = 0, level = new.level, marks = 0, error = ''}
    set_due(life, due, instant)
    save_life(topic, id, life)
    schedule(topic, id, life)
    expiring.stale = true
    keep_beside(topic, id, new, life.since)
    return {topic.digits, id, sub(value, 1, 2), format('%d', due), IF_EXISTS[new.if_exists]}
  end

  -- What a put comes to that creates nothing; nil when it is to be created.
  local function put_keyed(topic, new)
    local id, value, life, state = pending_holder(topic, new.key)
    if not id then return nil end
    local own = state == 'leased' and new.within == topic.digits .. id .. sub(value, 1, 2)
    if not own and (new.if_exists == 'keep' or new.if_exists == 'error') then
      local due = life and life.due or born_due(id, value)
      return {topic.digits, id, sub(value, 1, 2), format('%d', due), IF_EXISTS[new.if_exists]}
    end
    if state ~= 'leased' then
      if not new.largest then return replace(topic, id, value, state, life, new) end
      local result = rules.merge(topic, id, value, life, new)
      if result then return result end
      unschedule(topic, id, state, life)
    end
    life = life or new_life(id, value) -- it is running, or can't be changed, and goes on without: the new message takes the key over
    if not has(life.marks, KEYLESS) then life.marks = life.marks + KEYLESS end
    save_life(topic, id, life)
    if state ~= 'leased' then schedule(topic, id, life) end
    if emptying then holding.free(topic, new.key, id) end
    return nil
  end

  local function known_operation(new)
    local record = operations[new.operation]
    if record and now - unpack_('>I6', record) < AGE then return cmsgpack.unpack(sub(record, 7)) end
    return new.asked and became(new.asked, new.when)
  end

  function put_other(at, new)
    local topic = topic_for(new.topic)
    local holder = (topic and topic.digits or '') .. ' ' .. new.key
    if gathered[new.operation] or new.holds and gathered[holder] then settle_created() end
    local result = new.operation ~= '' and known_operation(new)
    if result then
      results[at] = result
      return
    end
    result = new.unique_for and rules.known(new) or topic and new.holds and put_keyed(topic, new)
    if result then
      results[at] = result
      note_operation(new, result)
      return
    end
    if emptying then
      results[at] = {'0', string.rep('\0', ID), '\0\0', '0', 'absent'}
      return
    end
    if new.max_wait then rules.begin(new) end
    new.at, new.into = at, topic
    created[#created + 1] = new
    if new.holds then gathered[holder] = true end
    if new.operation ~= '' then gathered[new.operation] = true end
  end
end

-- part: tails
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
