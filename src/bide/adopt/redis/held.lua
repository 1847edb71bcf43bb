-- script: held. What is held, and the time.
-- KEYS: what is held
-- Answers the time in milliseconds, and the fields with their values.
local now = redis.call('TIME')
return {string.format('%d%03d', now[1], math.floor(now[2] / 1000)), redis.call('HGETALL', KEYS[1])}
