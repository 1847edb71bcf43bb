-- Tell what is stored. After what every script is told: how many, and of each what names it (four arguments).
-- Gives: now, then of each nothing, or the topic's name and: its number, id, value, state, life, large body, end of lease.

-- include: begin home topic drop keys message units look refs

local function get(ref)
  local topic = ref.how == 'id' and load(ref.topic) or ref.how == 'key' and find_topic(ref.topic)
  if not topic then return {} end
  local id = ref.how == 'id' and ref.id or holder_of(topic, ref.id)
  local value = id and read(topic, id)
  if not value or (ref.how == 'id' and sub(value, 1, 2) ~= ref.salt) then return {} end
  local life = life_of(topic, id)
  local state = state_of(topic, id, life)
  if (state == 'far' or state == 'near') and expired(id, value, life) then return {} end
  return {topic.name, shown(topic, id, value, life, state)}
end

local reply = {format('%d', now)}
for i = 1, take_number() do reply[i + 1] = get(take_ref()) end
return reply
