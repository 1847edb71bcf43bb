-- name: due
-- What is due of one topic and level, in order.
select message.id, salt, due, attempt, most, coalesce(message.body, large.body), headers, key,
    coalesce(since, due), expires
from message left join large on large.id = message.id
where topic = :topic and stage = 0 and level = :level and due <= :now
order by due, message.id
limit :limit

-- name: lease
update message set stage = 1, attempt = attempt + 1, token = ?, request = ?, until = ? where id = ?

-- name: claimed_again
-- What a request holds.
select message.id, salt, due, attempt, most, coalesce(message.body, large.body), headers, key,
    coalesce(since, due), token, topic.name
from message join topic on topic.id = message.topic left join large on large.id = message.id
where request = :request and stage = 1 and topic.space = :space
order by due, message.id

-- name: first_due
-- The earliest of what is pending of a topic, a level at a time.
select min(due) from message where topic = :topic and stage = 0 and level = :level

-- name: held
-- The message of a delivery, with what its end depends on.
select id, topic, due, attempt, most, expires, error
from message
where id = ? and salt = ? and stage = 1 and token = ? and topic = ?

-- name: end
delete from message where id = ?

-- name: end_large
delete from large where id = ?

-- name: come_back
update message
set stage = 0, since = coalesce(since, nullif(due, :due)), due = :due, attempt = :attempt, error = :error,
    token = null, request = null, until = null
where id = :id

-- name: bury
update message
set stage = 2, died = :now, error = :error, token = null, request = null, until = null
where id = :id

-- name: extend
update message set until = ? where id = ?

-- name: any_large
select exists (select 1 from large)
