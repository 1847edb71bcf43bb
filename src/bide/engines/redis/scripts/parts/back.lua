-- What a delivery that did not succeed leaves: a message that is due again, a dead letter, or nothing.

local function give_attempt(id, value, life)
  life = life or new_life(id, value)
  life.attempt = life.attempt + 1
  return life
end

-- Make a message pending again, with or without a life; false when that would be after its expiry, and it has ended.
local function come_back(topic, id, value, life, due)
  local expires = expiry_of(id, value, life)
  if expires then
    if math.max(due, now) >= expires then
      finish(topic, id, value, life)
      return false
    end
    call('ZADD', P .. 'exp', expires, full_of(topic, id))
  end
  if life then
    life.due = due
    save_life(topic, id, life)
  end
  schedule(topic, id, life or {due = due, level = level_of(sub(id, 1, 1))})
  return true
end

local drops = 0 -- dead letters that this script has dropped
local DROPS = 100 -- that one script drops: what is left is for tend
local TO_DROP = '0' -- among the times in `graves`: a topic that has too many, whatever their age

-- Gives how many went.
local function drop_oldest_dead(topic, count)
  count = math.min(count, DROPS - drops)
  if count <= 0 then return 0 end
  local ids = call('ZRANGE', topic.prefix .. 'dead', 0, count - 1)
  for _, id in ipairs(ids) do
    call('ZREM', topic.prefix .. 'dead', id)
    finish(topic, id, read(topic, id), life_of(topic, id))
  end
  add(topic, 'dropped', #ids)
  set(topic, 'last', now)
  drops = drops + #ids
  return #ids
end

local function bury(topic, id, value, life, reason, most)
  local known = content(id, value)
  if known.key and not has(life.marks, KEYLESS) then free_key(topic, known.key, id) end
  if known.expires then call('ZREM', P .. 'exp', full_of(topic, id)) end
  life.error = reason
  save_life(topic, id, life)
  call('ZADD', topic.prefix .. 'dead', now, id)
  call('ZADD', P .. 'graves', 'NX', now, topic.digits)
  local over = call('ZCARD', topic.prefix .. 'dead') - most
  if over > 0 and drop_oldest_dead(topic, over) < over then call('ZADD', P .. 'graves', TO_DROP, topic.digits) end
end
