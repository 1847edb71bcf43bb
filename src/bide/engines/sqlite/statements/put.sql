-- name: put
insert into message (salt, topic, stage, level, due, most, body, headers, key, life, expires)
values (?, ?, 0, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: put_large
insert or replace into large (id, body) values (?, ?)

-- name: replace
update message
set level = :level, due = :due, most = :most, body = :body, headers = :headers, life = :life, expires = :expires,
    since = null, attempt = 0, error = null
where id = :id

-- name: lose_key
update message set key = null where id = :id

-- name: operation
select message, topic, due, outcome from operation where space = :space and name = :name

-- name: keep_operation
insert into operation (space, name, born, message, topic, due, outcome)
values (:space, :name, :born, :message, :topic, :due, :outcome)

-- name: forget_operations
delete from operation where born <= :born
