-- Who is woken, and whose alarm is set.

-- A token that nobody has taken yet is enough for all who sleep on a topic.
local function push_token(name)
  local key = P .. 'w:' .. name
  if call('LLEN', key) == 0 then call('LPUSH', key, '1') end
  if stored[4] then call('SET', P .. 'alarm', '1', 'PX', 1) end -- somebody listens for its expiry
end

-- Wake one of those who sleep on a topic, of which something is due then.
local function wake(topic, due)
  if topic.f.paused ~= 0 then return end
  if due < topic.f.next then set(topic, 'next', due) end
  if topic.woken then return end
  topic.woken = true
  push_token(topic.name)
end

-- Whose alarm is set for the next message of a topic: one idle caller's, and a moment later a second one's.
--
-- All that wait know the next due time, and would wake together for one message. So `timers` has, by topic: due, when
-- this was written, and the two who are told of it; others are told of no time, and look again with their sweep.

local BEHIND = 50 -- ms that the second one's alarm comes later
local FRESH, STALE = 4000, 12000 -- ms: an alarm is written again, and is taken over by another when it was not
local NOBODY = '--------'

local function set_alarm(topic, due, one, two)
  call('HSET', P .. 'timers', topic.name, pack('>I6I6', due, now) .. one .. two)
end

-- When this caller should come back for a message that is due then; math.huge when others do.
local function alarm(me, topic, due)
  local record = call('HGET', P .. 'timers', topic.name)
  if record then
    local first, stamp = unpack_('>I6I6', record)
    local one, two = sub(record, 13, 20), sub(record, 21, 28)
    if first == due and now - stamp < STALE then
      if one == me then
        if now - stamp > FRESH then set_alarm(topic, due, one, two) end
        return due
      end
      if two == NOBODY then
        set_alarm(topic, due, one, me)
        two = me
      end
      return two == me and due + BEHIND or math.huge
    end
  end
  set_alarm(topic, due, me, NOBODY)
  return due
end

-- A caller that got something may be busy when its alarm goes off: another one takes it over, if there is one.
local function hand_on(me, names)
  local records = #names > 0 and call('HMGET', P .. 'timers', unpack(names)) or {}
  for i, record in ipairs(records) do
    if record and sub(record, 13, 20) == me and sub(record, 21, 28) ~= NOBODY then
      call('HDEL', P .. 'timers', names[i])
      push_token(names[i])
    end
  end
end
