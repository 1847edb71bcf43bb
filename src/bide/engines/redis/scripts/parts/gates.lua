-- part: gates
-- A gate, as its scripts see it: what is in its keys, and what all of them do with it.
--
-- All of a gate is in the shard of its name. `inside:` has holders ('h' and its name) and waiters that are called ('c' and its
-- name) by the time at which their place is free again; `line:` has waiters in their order; `again:` has those that are called,
-- by when they are named again; `asking:` has those in line that have to ask again, by when. The hash `gate:` has the token of
-- each holder ('h' and its name), `places` as the last entry had it, and `asking` once somebody in line had to ask again.
-- `agenda` has of all gates ('g' and the name), and of all rates ('r' and the name), when there is something to do. These keys
-- go with the last that they are about.
--
-- A shard that only empties itself makes no gate. Of one that it does not have, its answer is 'a', and then the caller asks the
-- shard that would make it: so only one shard has a gate, and never both a caller of the old way and one of the new get in.

local MOST = 1000 -- places that one script takes back from one gate, and waiters that it calls

local gates, calls = {}, 0
local turn, soon -- ms that whoever is called has to enter, and after which it is named again
local function take_turns() turn, soon = take_number(), take_number() end

local function gate_of(name)
  local gate = gates[name]
  if not gate then
    gate = {name = name, key = P .. 'gate:' .. name, inside = P .. 'inside:' .. name, line = P .. 'line:' .. name}
    gate.again, gate.asking = P .. 'again:' .. name, P .. 'asking:' .. name
    gate.taken, gate.waiting = call('ZCARD', gate.inside), call('ZCARD', gate.line)
    gate.new = gate.taken == 0 and gate.waiting == 0
    gates[name] = gate
  end
  return gate
end

local function is_empty(gate) return gate.taken == 0 and gate.waiting == 0 end

local function know(gate, places, asking) gate.places, gate.asks = tonumber(places or 1), asking == '1' end

local function places_of(gate)
  if not gate.places then
    local known = call('HMGET', gate.key, 'places', 'asking')
    know(gate, known[1], known[2])
  end
  return gate.places
end

-- How many of these waited.
local function stop_waiting(gate, ...)
  if gate.asks then call('ZREM', gate.asking, ...) end
  local many = call('ZREM', gate.line, ...)
  gate.waiting = gate.waiting - many
  return many
end

-- Those leave the line that had to ask again, and did not.
local function drop_silent(gate)
  if gate.heard or gate.waiting == 0 then return end
  gate.heard = true
  places_of(gate)
  if not gate.asks then return end
  repeat
    local silent = call('ZRANGEBYSCORE', gate.asking, '-inf', now, 'LIMIT', 0, MOST)
    if #silent > 0 then
      stop_waiting(gate, unpack(silent))
      gate.changed = true
    end
  until #silent < MOST
end

-- Take back what is over.
local function clear(gate)
  if gate.cleared or gate.taken == 0 then return end
  gate.cleared = true
  local over = call('ZRANGEBYSCORE', gate.inside, '-inf', now, 'LIMIT', 0, MOST)
  if #over == 0 then return end
  local held, called = {}, {}
  for _, each in ipairs(over) do
    if byte(each) == 104 then held[#held + 1] = each else called[#called + 1] = sub(each, 2) end
  end
  if #held > 0 then call('HDEL', gate.key, unpack(held)) end
  if #called > 0 then call('ZREM', gate.again, unpack(called)) end
  call('ZREM', gate.inside, unpack(over))
  gate.taken, gate.changed = gate.taken - #over, true
end

-- Call those whose turn has come; seen(waiter) is told of each.
local function call_waiters(gate, most, seen)
  if gate.waiting == 0 or gate.taken >= places_of(gate) then return end
  local many = math.min(gate.waiting, gate.places - gate.taken, most, MOST - calls)
  if many <= 0 then return end
  local waiters, turns, again = call('ZRANGE', gate.line, 0, many - 1), {}, {}
  for i, waiter in ipairs(waiters) do
    turns[2 * i - 1], turns[2 * i] = format('%d', now + turn), 'c' .. waiter
    again[2 * i - 1], again[2 * i] = format('%d', now + soon), waiter
    seen(waiter)
  end
  stop_waiting(gate, unpack(waiters))
  call('ZADD', gate.inside, unpack(turns))
  call('ZADD', gate.again, unpack(again))
  gate.taken, gate.changed = gate.taken + #waiters, true
  calls = calls + #waiters
end

local function first_time(key) return tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or math.huge) end

-- When there is something to do. It is not empty.
local function next_time(gate)
  if gate.waiting > 0 and gate.taken < places_of(gate) then return now end
  local first = first_time(gate.inside)
  return gate.new and first or math.min(first, first_time(gate.again))
end

local function end_rate(name)
  call('HDEL', P .. 'rates', name)
  call('UNLINK', P .. 'kept:' .. name)
  call('ZREM', P .. 'agenda', 'r' .. name)
end

local function close_gates()
  local agenda, gone = {}, {}
  for name, gate in pairs(gates) do
    if gate.changed then
      if is_empty(gate) then
        if not gate.new then call('UNLINK', gate.key) end
        gone[#gone + 1] = 'g' .. name
      else
        agenda[#agenda + 1], agenda[#agenda + 2] = format('%d', next_time(gate)), 'g' .. name
      end
    end
  end
  if #agenda > 0 then call('ZADD', P .. 'agenda', unpack(agenda)) end
  if #gone > 0 then call('ZREM', P .. 'agenda', unpack(gone)) end
end

-- Of `most` gates and rates whose time came a while ago, those that nobody waits for: take back what is over. If nobody else
-- does, the locks of programs that died stay for ever. Those with a line are for `recall`, which tells who is called.
local WHILE = 600000 -- ms: a holder that is late may keep what nobody else wants

local function tidy(most)
  for _, each in ipairs(call('ZRANGEBYSCORE', P .. 'agenda', '-inf', now - WHILE, 'LIMIT', 0, most)) do
    if byte(each) ~= 103 then
      end_rate(sub(each, 2))
    else
      local gate = gate_of(sub(each, 2))
      drop_silent(gate)
      if gate.waiting == 0 then
        clear(gate)
        gate.changed = true
      end
    end
  end
end

local function check_count(count)
  if count > 1000 then error('BADARG count', 0) end
  return count
end

-- The token that was given last. It rises with each entry, and is not below the time, which a failover does not turn back. It
-- counts in microseconds, so that entries don't run ahead of the time.
local last_token
local function token_before()
  if not last_token then last_token = number(call('HGET', META, 'token') or 0) end
  return last_token
end

-- Of who is inside: whether this is its token.
local function holds(gate, held)
  return held.token ~= '' and call('HGET', gate.key, 'h' .. held.holder) == sub(held.token, 2)
end

local function take_held()
  local held = {}
  for i = 1, check_count(take_number()) do held[i] = {gate = take_text(), holder = take_text(), token = take_text()} end
  return held
end
