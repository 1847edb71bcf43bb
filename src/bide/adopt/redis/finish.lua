-- script: finish. Forgets what was held.
-- KEYS: what is held
-- ARGV: the names
for _, name in ipairs(ARGV) do
  redis.call('HDEL', KEYS[1], name .. ':entry', name .. ':score', name .. ':job')
end
return #ARGV
