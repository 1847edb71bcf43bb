-- part: leases
-- A lease is a claim, known by the request that made it.
--
-- `held` has its number (HEAD digits) and the full ids of what it handed out (15 bytes each), `open` a letter for each:
-- 0 it has ended, 1 it is plain, 2 something beside the body must be put in order when it ends. `lease` has the time at
-- which the claim ends; where parts of it were extended apart, `until` has a time (DEADLINE bytes) for each.

local ENDED, SIMPLE, OTHER = 48, 49, 50
local HEAD, DEADLINE = 16, 6
local claims = {}

local function claim_of(request)
  if claims[request] ~= nil then return claims[request] end
  local held = call('HGET', P .. 'held', request)
  local open = held and call('HGET', P .. 'open', request)
  local claim = false
  if held and open then
    claim = {request = request, number = sub(held, 1, HEAD), held = held, states = {byte(open, 1, -1)}}
  end
  claims[request] = claim
  return claim
end

-- Positions count from 1.
local function full_at(claim, position) return sub(claim.held, HEAD + 1 + FULLID * (position - 1), HEAD + FULLID * position) end

-- The position of a delivery in its claim, if it has not ended.
local function is_open(claim, position, full)
  return claim.states[position] and claim.states[position] ~= ENDED and full_at(claim, position) == full
end

-- When the parts of a claim end that were extended apart; false when they end together.
local function deadlines_of(claim)
  if claim.deadlines == nil then claim.deadlines = call('HGET', P .. 'until', claim.request) or false end
  return claim.deadlines
end

local function deadline_at(deadlines, position) return unpack_('>I6', deadlines, DEADLINE * (position - 1) + 1) end

-- Deliveries end, and a claim ends with the last of them.

local function end_delivery(claim, position)
  claim.states[position] = ENDED
  claim.touched = true
end

local function close_claims()
  for request, claim in pairs(claims) do
    if claim and claim.touched then
      local left = false
      for position = 1, #claim.states do
        if claim.states[position] ~= ENDED then left = true end
      end
      if left then
        call('HSET', P .. 'open', request, string.char(unpack(claim.states)))
      else
        call('ZREM', P .. 'lease', request)
        call('HDEL', P .. 'held', request)
        call('HDEL', P .. 'open', request)
        if deadlines_of(claim) then call('HDEL', P .. 'until', request) end
      end
    end
  end
end

-- Walks through all claims without changing them. A claim that is there all the time is met, whatever comes and goes meanwhile.

local function lease_end(claim, position)
  local deadlines = deadlines_of(claim)
  if deadlines then return deadline_at(deadlines, position) end
  claim.ends = claim.ends or tonumber(call('ZSCORE', P .. 'lease', claim.request) or now)
  return claim.ends
end

-- Calls seen(claim) for each claim from the cursor on; gives the cursor to go on from, '0' at the end.
local function each_claim(cursor, seen)
  local count = 1
  repeat
    local found = call('HSCAN', P .. 'held', cursor, 'COUNT', count)
    cursor = found[1]
    local requests, helds, size = {}, {}, 0
    for i = 1, #found[2], 2 do
      requests[#requests + 1], helds[#helds + 1] = found[2][i], found[2][i + 1]
      size = size + #found[2][i + 1]
    end
    local opens = #requests > 0 and call('HMGET', P .. 'open', unpack(requests)) or {}
    worked = worked + 4 + 4 * #requests + size / 20
    for i, request in ipairs(requests) do
      if opens[i] and not claims[request] then
        claims[request] = {request = request, number = sub(helds[i], 1, HEAD), held = helds[i], states = {byte(opens[i], 1, -1)}}
        seen(claims[request])
      end
    end
    if size < 2048 then count = math.min(count * 2, 64) end
  until cursor == '0' or tired()
  return cursor
end
