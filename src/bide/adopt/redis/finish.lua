-- script: finish. Forgets what was held.
-- KEYS: what is held
-- ARGV: the names
for _, name in ipairs(ARGV) do
  for _, part in ipairs({':entry', ':score', ':id', ':job', ':from', ':asked'}) do redis.call('HDEL', KEYS[1], name .. part) end
end
return #ARGV
