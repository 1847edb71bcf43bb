-- All statements of kept results. Each begins with a line `-- name: …`, by which it is run.

-- Results.
-- name: expect
insert into bide_result (space, message, until, done, token) values (:space, :message, :until, 0, '')
on conflict (space, message) do update set until = excluded.until, done = 0, value = null, token = '' where until <= :now

-- name: fulfil
-- A worker that stood still may return when another one has done the same: the later delivery counts.
insert into bide_result (space, message, until, done, value, token) values (:space, :message, :until, 1, :value, :token)
on conflict (space, message) do update set until = excluded.until, done = 1, value = excluded.value, token = excluded.token
where token <= excluded.token or until <= :now

-- name: read_result
select done, value from bide_result where space = :space and message = :message and until > :now

-- name: tidy_results
delete from bide_result where space = :space and message in (
    select message from bide_result where space = :space and until <= :now order by until limit :limit
)

-- Dependent messages.
-- name: depend
insert into bide_waiting (space, message, other, arrived, until) values (:space, :message, :other, 0, :until)
on conflict do nothing

-- name: followers
select message from bide_waiting where space = :space and other = :other

-- name: arrive
update bide_waiting set arrived = 1 where space = :space and message = :message and other = :other and not arrived

-- name: waits_for
-- How many there are, and how many have arrived. The + keeps SQLite from looking through all rows that are not over.
select count(*), sum(arrived) from bide_waiting where space = :space and message = :message and +until > :now

-- name: forget_waiting
delete from bide_waiting where space = :space and message = :message

-- name: tidy_waiting
delete from bide_waiting where space = :space and message in (
    select message from bide_waiting where space = :space and until <= :now order by until limit :limit
)
