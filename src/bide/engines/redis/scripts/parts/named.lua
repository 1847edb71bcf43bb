-- Topic, id, value, life, state of a message that has not ended.
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
