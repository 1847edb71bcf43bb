-- A message is pending at another time, level or attempt than it was sent with: it has a life.

local function new_life(id, value)
  local due = born_due(id, value)
  return {due = due, since = due, attempt = 0, level = level_of(id), marks = 0, error = ''}
end

local function save_life(topic, id, life)
  call('HSET', topic.prefix .. 'life', id, life_text(life))
  topic.lives = true
end

-- Put a message's time into the zset of its level.
local function schedule(topic, id, life)
  local key = topic.prefix .. 'due' .. life.level
  local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
  call('ZADD', key, life.due, id)
  use_level(topic, life.level)
  if life.due <= now or not first or life.due < tonumber(first) then wake(topic, life.due) end
end
