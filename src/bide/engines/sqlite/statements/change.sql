-- name: by_id
select message.id, salt, topic, stage, due, level, life, expires
from message
where message.id = :id and salt = :salt and topic in (select id from topic where space = :space)

-- name: by_key
select message.id, salt, topic, stage, due, level, life, expires
from message
where key = :key and stage < 2 and topic = (select id from topic where space = :space and name = :name)

-- name: reschedule
update message set due = :due, since = null, expires = :expires where id = :id

-- name: dead
select id, key, life from message where topic = :topic and stage = 2 order by died, id limit :limit

-- name: dead_one
select id, key, life from message where id = :id and salt = :salt and topic = :topic and stage = 2

-- name: revive
update message
set stage = 0, attempt = 0, error = null, died = null, due = :due, since = null, expires = :expires,
    key = case when exists (
        select 1 from message other where other.topic = message.topic and other.key = message.key and other.stage < 2
    ) then null else key end
where id = :id

-- name: purge_dead
select id from message where topic = :topic and stage = 2 order by died limit :limit

-- name: purge_ready
select id from message where topic = :topic and stage = 0 and level = :level and due <= :now
    and (expires is null or expires > :now) limit :limit

-- name: purge_scheduled
select id from message where topic = :topic and stage = 0 and level = :level and due > :now
    and (expires is null or expires > :now) limit :limit

-- name: forget_dropped
update topic set dropped = 0 where id = :topic
