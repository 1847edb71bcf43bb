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
