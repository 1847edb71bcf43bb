-- part: rules
-- What some sends say more of a message that holds their key. The other scripts that accept messages know nothing of it.

do
  -- When the first of the sends was that each move a message later: that is in its first header. core/key_rules.py is the same for Python.
  local MARK, DIGITS = '{"bide-first":"', 13
  local LONG = 1024 -- bytes: longer headers and body have a key of their own
  local MARK_AT = 5 + #MARK -- in headers and body, which begin with the headers' length

  local function first_in(tail)
    if sub(tail, 5, MARK_AT - 1) ~= MARK then return nil end
    local first = string.match(tail, '^(%d+)"', MARK_AT)
    return first and #first == DIGITS and tonumber(first)
  end

  local function with_first(text, at, first)
    return sub(text, 1, at - 1) .. format('%013d', first) .. sub(text, at + DIGITS)
  end

  local function mark(new, first)
    if new.large ~= '' then
      new.large = with_first(new.large, MARK_AT, first)
    else
      new.blob = with_first(new.blob, tails.at(new.blob, 1) + MARK_AT - 1, first)
    end
  end

  -- What a message has lived through elsewhere: its attempts, whether it is dead, its error, and the records of attempts.
  local function take_past(new)
    local text, past = new.if_exists, {traces = {}}
    local dead, length, at
    past.attempt, dead, length, at = unpack_('>I2BI4', text, 6)
    past.dead, past.error, at = dead == 1, sub(text, at, at + length - 1), at + length
    while at <= #text do
      length, at = unpack_('>I2', text, at)
      past.traces[#past.traces + 1], at = sub(text, at, at + length - 1), at + length
    end
    new.if_exists, new.past, new.holds = 'keep', past, new.holds and not past.dead
  end

  function rules.live_through(topic, id, new)
    local value, past = read(topic, id), new.past
    local life = life_of(topic, id)
    unschedule(topic, id, state_of(topic, id, life), life)
    life = life or new_life(id, value)
    for _, record in ipairs(past.traces) do keep_trace(topic, id, life, record) end
    life.attempt, life.error = past.attempt, past.error
    if past.dead then
      if new.known.expires then write_expiring() end -- what buries it forgets when it expires
      bury(topic, id, value, life, past.error, math.huge)
      call('ZADD', P .. 'graves', TO_DROP, topic.digits) -- tend knows how many are kept
      need_upkeep(now)
    else
      save_life(topic, id, life)
      schedule(topic, id, life)
    end
  end

  function rules.take(new)
    if sub(new.if_exists, 1, 5) == 'past ' then return take_past(new) end
    local how, longest = string.match(new.if_exists, '^(%l+) (%d+)$')
    if not how or new.blob == '' or new.key == '' then return end
    if how == 'keep' or how == 'error' then
      new.if_exists, new.unique_for = how, number(longest)
      return
    end
    if how == 'merge' then
      new.if_exists, new.largest = how, number(longest)
      return
    end
    if how ~= 'later' then return end
    local tail = new.large ~= '' and new.large or sub(new.blob, tails.at(new.blob, 1))
    if not has(byte(new.blob), FLAG.headers) or not first_in(tail) then return end
    new.if_exists, new.max_wait = how, number(longest)
  end

  -- Bodies are lists in JSON, which are joined as texts: core/key_rules.py is the same for Python.
  local function joined(held, new)
    if held == '[]' then return new end
    if not string.find(held, '^%[.*[^ \t\r\n]%]$') then return nil end
    return sub(held, 1, -2) .. ',' .. sub(new, 2)
  end

  -- What is said of a pending message into which the new one was merged, or that has no list; nil when it can't be changed.
  function rules.merge(topic, id, value, life, new)
    if life and life.attempt > 0 then return nil end
    local flags, tail, at = flags_of(id, value), tails.of(topic, id, value), FLAGS_AT[sort_of(id)]
    local from, news = tails.body_at(flags, tail), new.large ~= '' and new.large or sub(new.blob, tails.at(new.blob, 1))
    local body = joined(sub(tail, from), sub(news, tails.body_at(byte(new.blob), news)))
    local result = {topic.digits, id, sub(value, 1, 2), format('%d', life and life.due or born_due(id, value)), 'exists'}
    if not body then return result end
    if #body > new.largest then return nil end
    tail = sub(tail, 1, from - 1) .. body
    if has(flags, FLAG.large) then
      call('SET', large_of(topic, id), tail)
    else
      local head = sub(value, at + 1, tails.at(value, at) - 1)
      if #tail > LONG then
        call('SET', large_of(topic, id), tail)
        flags, tail = flags + FLAG.large, ''
      end
      local kind, slot, n = location(id)
      call('LSET', bucket_of(topic, kind, slot, n), n % BUCKET, sub(value, 1, at - 1) .. char(flags) .. head .. tail)
    end
    result[5] = 'merged'
    return result
  end

  -- The message that is the only one of its key for a time is in a key that expires: until when, and what others are answered.
  local SPARE = 600000 -- ms that it lives longer, for when engine time runs slower than the server's

  local function period_of(new) return P .. 'u:' .. new.topic .. ':' .. new.key end

  function rules.known(new)
    local record = call('GET', period_of(new))
    if not record or unpack_('>I6', record) <= now then return nil end
    local result = cmsgpack.unpack(sub(record, 7))
    if new.if_exists == 'error' then result[5] = 'exists' end
    return result
  end

  -- `meta` has the time until which there are such keys: a shard that empties itself is asked until then.
  function rules.remember(new, result)
    local over = now + new.unique_for
    local record = {result[1], result[2], result[3], result[4], 'duplicate'}
    call('SET', period_of(new), pack('>I6', over) .. cmsgpack.pack(record), 'PX', format('%d', new.unique_for + SPARE))
    if over > tonumber(call('HGET', META, 'unique') or 0) then call('HSET', META, 'unique', format('%d', over)) end
  end

  function rules.begin(new)
    if new.due > ceiling + new.max_wait then
      new.due = ceiling + new.max_wait
      set_delayed(new)
    end
    mark(new, ceiling)
  end

  -- When a message is due that a later send moves. A delivery ends what was sent before.
  function rules.due_of(topic, id, value, life, new)
    local delivered = life and life.attempt > 0
    local first = not delivered and has(flags_of(id, value), FLAG.headers) and first_in(tails.of(topic, id, value)) or ceiling
    mark(new, first)
    if new.due <= first + new.max_wait then return new.due end
    set_delayed(new)
    return first + new.max_wait
  end
end
