-- What an engine asks of a shard beside its verbs, when it opens, sleeps and closes.

-- include: begin

-- script: time
-- Tell the time. Gives: now.

return tell({format('%d', now)})

-- script: pin
-- Say how the shards are spread. Gives: now.

begin_shrinking()
return {format('%d', now)}

-- script: spread
-- The shards are spread otherwise from now on. After what every script is told, which has what was known until now: how. For
-- new shards also how many pauses they have taken over: then nothing is done if there have been more. Gives: now, 1 or 0.

local new, pauses = take_text(), ARGV[NEXT + 1]
if not string.find(new, '^%d+:%d[%d:;@|]*$') then error('BADARG spread', 0) end
if pauses and pauses ~= (call('HGET', META, 'pauses') or '') then return {format('%d', now), 0} end
begin_shrinking()
call('HSET', META, 'layout', SPREAD, 'shards', new, 'respread', format('%d', now))
return {format('%d', now), 1}

-- script: count_pause
-- All shards that the caller knows of have paused a topic, or resumed it: shard 0 counts that. Gives: now.

begin_shrinking()
call('HINCRBY', META, 'pauses', 1)
return {format('%d', now)}

-- script: expect
-- From now on a wake-up is also a key that expires, since somebody listens for that. Gives: now.

if not stored[4] then
  begin_shrinking()
  call('HSET', META, 'expiry', '1')
end
return tell({format('%d', now)})

-- script: hear
-- Take a token from the wake lists, without blocking. After what every script is told: topics. Gives: now, 1 or 0.

local refused = before()
if refused then return refused end
local woken = 0
while NEXT < #ARGV and woken == 0 do
  if call('LPOP', P .. 'w:' .. take_text()) then woken = 1 end
end
return tell({format('%d', now), woken})

-- script: sweep
-- Whether a sleeper should claim again although nothing woke it. After what every script is told: how many ms ahead to look,
-- then topics. Gives: now, 1 or 0.

-- include: topics

local ahead, awake = now + take_number(), upkeep <= now
for _, known in ipairs(call('HMGET', P .. 'topics', unpack(ARGV, NEXT + 1, #ARGV))) do
  if known then
    local _, due = noted(known)
    awake = awake or due <= ahead
  end
end
return tell({format('%d', now), awake and 1 or 0})

-- script: close
-- Give back the alarms of a caller that goes. After what every script is told: who (8 letters), then topics. Gives: now.

-- include: layout topics wake

local me = take_text()
call('HDEL', META, '-')
while NEXT < #ARGV do
  local name = take_text()
  local record = call('HGET', P .. 'timers', name)
  local one, two
  if record then one, two = owners_of(record) end
  if one == me or two == me then
    call('HDEL', P .. 'timers', name)
    local topic = find_topic(name)
    if topic and topic.f.paused == 0 then push_token(name) end
  end
end
return tell({format('%d', now)})
