-- Give back the alarms of a caller that goes. After what every script is told: who (8 letters), then topics. Gives: now.

-- include: begin once home topic change tell

local me = take_text()
call('HDEL', META, '-')
while NEXT < #ARGV do
  local name = take_text()
  local record = call('HGET', P .. 'timers', name)
  if record and (sub(record, 13, 20) == me or sub(record, 21, 28) == me) then
    call('HDEL', P .. 'timers', name)
    local topic = find_topic(name)
    if topic and topic.f.paused == 0 then push_token(name) end
  end
end
return tell({format('%d', now)})
