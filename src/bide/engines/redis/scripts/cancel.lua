-- Pending messages end, or get a new time.

-- include: begin layout topics wake keys holding expiries finish pending

-- script: cancel
-- End pending messages. After what every script is told: how many, and of each what names it (four arguments).
-- Gives: now, a string of c (cancelled), r (running), d (dead) and g (gone).

local function cancel(ref)
  local topic, id, value, life, state = find(ref)
  if not id then return 'g' end
  if state == 'leased' then return 'r' end
  if state == 'dead' then return 'd' end
  unschedule(topic, id, state, life)
  finish(topic, id, value, life)
  return 'c'
end

local again = before()
if again then return again end
local refs, results = {}, {}
for i = 1, take_number() do refs[i] = take_ref() end
begin_shrinking()
for i, ref in ipairs(refs) do results[i] = cancel(ref) end
close_topics()
return answer({format('%d', now), table.concat(results)})

-- script: reschedule
-- Give pending messages a new time. After what every script is told: the longest delay, how many, and of each: when (ms
-- from now; '@' and an instant; '+' and ms from its due time, or '-' and ms from since when it waits) and what names it (four
-- arguments). Gives: now, a string of m, r (running), d (dead), g (gone).

local DUE, SINCE = 43, 45 -- what `when` begins with if it counts from a time of the message

-- Moves it to `due`, or to so long after its own time.
local function move(ref, due, from, furthest)
  local topic, id, value, life, state = find(ref)
  if not id then return 'g' end
  if state == 'leased' then return 'r' end
  if state == 'dead' then return 'd' end
  unschedule(topic, id, state, life)
  life = life or new_life(id, value)
  if from then due = math.min((from == DUE and life.due or life.since) + due, furthest) end
  life.due, life.since = due, due
  forget_began(life)
  save_life(topic, id, life)
  schedule(topic, id, life)
  local expires = expiry_of(id, value, life)
  if expires then expiries.note_of(topic, id, expires) end
  return 'm'
end

local again = before()
if again then return again end
local longest, moves, results = take_number(), {}, {}
for i = 1, take_number() do
  local when = take_text()
  local from = byte(when)
  if from == DUE or from == SINCE then
    local delay = number(sub(when, 2))
    if delay > longest then error('TOOFAR', 0) end
    moves[i] = {delay, take_ref(), from}
  else
    moves[i] = {due_of(when, longest, now, ceiling), take_ref()}
  end
end
begin_growing()
for i, each in ipairs(moves) do results[i] = move(each[2], each[1], each[3], now + longest) end
close_topics()
return answer({format('%d', now), table.concat(results)})
