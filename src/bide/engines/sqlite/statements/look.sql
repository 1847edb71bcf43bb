-- name: stored_by_id
select message.id, salt, topic.name, stage, due, attempt, most, key, level, coalesce(message.body, large.body), headers,
    error, until, expires, died
from message join topic on topic.id = message.topic left join large on large.id = message.id
where message.id = :id and salt = :salt and topic.space = :space

-- name: stored_by_key
select message.id, salt, topic.name, stage, due, attempt, most, key, level, coalesce(message.body, large.body), headers,
    error, until, expires, died
from message join topic on topic.id = message.topic left join large on large.id = message.id
where key = :key and stage < 2 and topic.space = :space and topic.name = :name

-- name: page_pending
-- Of one level: what comes after a place, from a due time up to another.
select message.id, salt, topic.name, stage, due, attempt, most, key, level, coalesce(message.body, large.body), headers,
    error, until, expires, died
from message join topic on topic.id = message.topic left join large on large.id = message.id
where message.topic = :topic and stage = 0 and level = :level
    and due between :begin and :end and (due, message.id) > (:instant, :id)
order by due, message.id limit :limit

-- name: page_leased
select message.id, salt, topic.name, stage, due, attempt, most, key, level, coalesce(message.body, large.body), headers,
    error, until, expires, died
from message join topic on topic.id = message.topic left join large on large.id = message.id
where message.topic = :topic and stage = 1 and (due, message.id) > (:instant, :id)
order by due, message.id limit :limit

-- name: page_dead
select message.id, salt, topic.name, stage, due, attempt, most, key, level, coalesce(message.body, large.body), headers,
    error, until, expires, died
from message join topic on topic.id = message.topic left join large on large.id = message.id
where message.topic = :topic and stage = 2 and (died, message.id) > (:instant, :id)
order by died, message.id limit :limit

-- name: topics
select id, name, paused, dropped from topic where space = :space

-- name: one_topic
select id, name, paused, dropped from topic where space = :space and name = :name

-- name: count_pending
-- Of one topic and level: how many are ready, how many are not, the first due and the first to become so.
select count(*) filter (where due <= :now), count(*), min(due), min(due) filter (where due > :now)
from message where topic = :topic and stage = 0 and level = :level

-- name: count_leased
select count(*) from message where topic = :topic and stage = 1

-- name: count_dead
select count(*) from message where topic = :topic and stage = 2

-- name: timeline
select (due - :start) * :parts / (:end - :start) as part, count(*)
from message where topic = :topic and stage = 0 and level = :level and due >= :start and due < :end
group by part
