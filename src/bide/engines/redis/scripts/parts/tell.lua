-- What a script answers that may write nothing else: time would stand still if such scripts only told it. It does for a
-- user who may only read, until somebody comes who may write.
local function tell(reply)
  if unknown and (not redis.acl_check_cmd or redis.acl_check_cmd('HDEL', META) and redis.acl_check_cmd('HSET', META)) then
    redis.pcall('HDEL', META, '-') -- first what a full server does, too
    redis.pcall('HSET', META, unpack(this_time()))
  end
  return reply
end
