-- Tell what is stored. After what every script is told: how many, and of each what names it (four arguments; without a salt
-- it is shown as it is, expired or not). Gives: now, then of each nothing, or the topic's name and: its number, id, value,
-- state, life, large body. What would be too much at once is left out at the end: it is to be asked for again.

-- include: begin home topic keys message walk show refs tell

local function get(ref)
  local topic = ref.how == 'id' and load(ref.topic) or ref.how == 'key' and find_topic(ref.topic)
  if not topic then return {} end
  local id = ref.how == 'id' and ref.id or holder_of(topic, ref.id)
  local value = id and read(topic, id)
  local as_it_is = ref.how == 'id' and ref.salt == ''
  if not value or (ref.how == 'id' and not as_it_is and sub(value, 1, 2) ~= ref.salt) then return {} end
  local life = life_of(topic, id)
  local state = state_of(topic, id, life)
  if (state == 'far' or state == 'near') and not as_it_is and expired(id, value, life) then return {} end
  return {topic.name, shown(topic, id, value, life, state)}
end

local reply = {format('%d', now)}
for i = 1, take_number() do
  if i > 1 and (tired() or shown_bytes >= FULL) then break end
  reply[i + 1] = get(take_ref())
  worked = worked + 5
end
return tell(reply)
