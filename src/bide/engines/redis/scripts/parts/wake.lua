-- Who is woken, and whose alarm is set.

-- One token a topic is enough until it is taken.
local function push_token(name)
  local key = P .. 'w:' .. name
  if call('LLEN', key) == 0 then call('LPUSH', key, '1') end
  if stored[4] then call('SET', P .. 'alarm', '1', 'PX', 1) end -- there are clients with wake=expiry
end

-- Wake a receiver of a topic that has a message due at that time.
local function wake(topic, due)
  if topic.f.paused ~= 0 then return end
  if due < topic.f.next then set(topic, 'next', due) end
  if topic.woken then return end
  topic.woken = true
  push_token(topic.name)
end

-- Alarms: if every idle receiver knew the next due time, all would wake for one message. So one sets an alarm for it, and a
-- second one an alarm that is a moment later. `timers` has by topic: due, and these two. The others get no time. That is needed
-- only when it is due soon: before what is due later, all look again with their next sweep.

local BEHIND = 50 -- ms between the two alarms
local SOON = 6000 -- ms: more than the time between two sweeps
local NOBODY = '--------'

local function owners_of(record) return sub(record, 7, 14), sub(record, 15, 22) end

-- When this receiver should claim again for a message that is due then; math.huge when others will.
local function alarm(me, topic, due)
  if due - now > SOON then return due end
  local record = call('HGET', P .. 'timers', topic.name)
  local one, two = me, NOBODY
  if record and unpack_('>I6', record) == due then
    one, two = owners_of(record)
    if one == me then return due end
    if two == me then return due + BEHIND end
    if two ~= NOBODY then return math.huge end
    two = me
  end
  redis.pcall('HSET', P .. 'timers', topic.name, pack('>I6', due) .. one .. two) -- a full server may refuse it: all wake then
  return one == me and due or due + BEHIND
end

-- A receiver that got messages may be busy when its alarm goes off, so it gives the alarm to the other one, if there is one.
local function hand_on(me, names)
  local records = #names > 0 and call('HMGET', P .. 'timers', unpack(names)) or {}
  for i, record in ipairs(records) do
    local one, two
    if record then one, two = owners_of(record) end
    if one == me and two ~= NOBODY then
      call('HDEL', P .. 'timers', names[i])
      push_token(names[i])
    end
  end
end
