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
-- second one an alarm that is a moment later. `timers` has by topic: due, when this was written, and these two. The others get
-- no time, and look again with their next sweep.

local BEHIND = 50 -- ms between the two alarms
local FRESH, STALE = 4000, 12000 -- ms: an owner confirms its alarm after the first, and loses it after the second
local NOBODY = '--------'

local function owners_of(record) return sub(record, 13, 20), sub(record, 21, 28) end

local function set_alarm(topic, due, one, two)
  call('HSET', P .. 'timers', topic.name, pack('>I6I6', due, now) .. one .. two)
end

-- When this receiver should claim again for a message that is due then; math.huge when others will.
local function alarm(me, topic, due)
  local record = call('HGET', P .. 'timers', topic.name)
  if record then
    local first, stamp = unpack_('>I6I6', record)
    local one, two = owners_of(record)
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
