-- Pending messages that a caller names, to cancel or to move them.

local function leave_far(topic, id)
  local kind, slot = location(id)
  add(topic, 'far', -1)
  if sort_of(kind) == READY then
    add(topic, 'g' .. kind, 1)
  else
    call('HINCRBY', topic.prefix .. 'slots', 'g' .. slot_name(kind, slot), 1)
  end
end

-- Remove a pending message's time.
local function unschedule(topic, id, state, life)
  if state == 'far' then return leave_far(topic, id) end
  local level = life and life.level or level_of(id)
  call('ZREM', topic.prefix .. 'due' .. level, id)
end

-- Id, value, life and state of a message that has not ended; an expired one ends now. Its value may be known.
local function living(topic, id, salt, value)
  value = value or read(topic, id)
  if not value or (salt and sub(value, 1, 2) ~= salt) then return nil end
  local life = life_of(topic, id)
  local state = state_of(topic, id, life)
  if state == 'far' or state == 'near' then
    local expires = expiry_of(id, value, life)
    if expires and expires <= now then
      unschedule(topic, id, state, life)
      finish(topic, id, value, life)
      return nil
    end
  end
  return id, value, life, state
end

local function pending_holder(topic, key)
  local id, value = index.holder(topic, key)
  if id then return living(topic, id, nil, value) end
end

-- How callers name a message: ('id', topic's number, id, salt) or ('key', topic, key, '').

local function take_ref()
  local ref = {how = take_text(), topic = take_text(), id = take_text(), salt = take_text()}
  if ref.how ~= 'key' and (ref.how ~= 'id' or #ref.id ~= ID or not is_kind(ref.id)) then error('BADARG id', 0) end
  return ref
end

-- Topic, id, value, life and state of a message that has not ended.
local function find(ref)
  local topic
  if ref.how == 'id' then
    topic = load(ref.topic)
    if topic then return topic, living(topic, ref.id, ref.salt) end
  else
    topic = find_topic(ref.topic)
    if topic then return topic, pending_holder(topic, ref.id) end
  end
end
