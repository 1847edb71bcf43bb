-- All statements. Each begins with a line `-- name: …`, by which it is run.

-- Accepting messages.
-- name: put
-- A number is never given twice: it is higher than those of the table, and than the highest of those that have left it.
insert into message (id, salt, topic, stage, level, due, most, body, headers, key, life, expires)
values (
    1 + max(coalesce((select max(id) from message), 0), (select highest from message_ended)),
    ?, ?, 0, ?, ?, ?, ?, ?, ?, ?, ?
)

-- name: is_instant
update message set instant = 1, since = :since where id = :id

-- name: put_large
insert or replace into large (id, body) values (?, ?)

-- name: replace
update message
set level = :level, due = :due, most = :most, body = :body, headers = :headers, life = :life, expires = :expires,
    since = :since, instant = :instant, began = null, traced = null, attempt = 0, error = null
where id = :id

-- name: body
select coalesce(message.body, large.body) from message left join large on large.id = message.id where message.id = :id

-- name: set_body
update message set body = :body where id = :id

-- name: headers
select headers from message where id = :id

-- name: had_attempts
update message set attempt = :attempt, error = :error, key = :key where id = :id

-- name: lose_key
update message set key = null where id = :id

-- name: operation
select message, topic, due, outcome from operation where space = :space and name = :name and born > :after

-- name: keep_operation
insert or replace into operation (space, name, born, message, topic, due, outcome)
values (:space, :name, :born, :message, :topic, :due, :outcome)

-- name: forget_operations
delete from operation where (space, name) in (select space, name from operation where born <= :born limit :limit)

-- Pending messages and dead letters.
-- name: by_id
-- The namespace is asked of the one message: a list of all topics would be made for each.
select message.id, salt, topic, stage, due, level, life, expires, coalesce(since, due), instant, attempt
from message
where message.id = :id and salt = :salt and :space = (select space from topic where topic.id = message.topic)

-- name: by_key
select message.id, salt, topic, stage, due, level, life, expires, coalesce(since, due), instant, attempt
from message
where key = :key and stage < 2 and topic = (select id from topic where space = :space and name = :name)

-- name: reschedule
update message set due = :due, since = :since, instant = :instant, began = null, expires = :expires where id = :id

-- name: dead
select id, key, life from message where topic = :topic and stage = 2 order by died, id limit :limit

-- name: dead_one
select id, key, life from message where id = :id and salt = :salt and topic = :topic and stage = 2

-- name: revive
update message
set stage = 0, attempt = 0, error = null, died = null, due = :due, since = null, instant = null, began = null, expires = :expires,
    key = case when exists (
        select 1 from message other where other.topic = message.topic and other.key = message.key and other.stage < 2
    ) then null else key end
where id = :id

-- name: purge_dead
select id from message where topic = :topic and stage = 2 order by died limit :limit

-- name: purge_ready
select id from message where topic = :topic and stage = 0 and level = :level and due <= :now
    and (instant is null or due <= :wall) and (expires is null or expires > :now) limit :limit

-- name: purge_scheduled
select id from message where topic = :topic and stage = 0 and level = :level and due > :wall
    and (instant is not null or due > :now) and (expires is null or expires > :now) limit :limit

-- name: forget_dropped
update topic set dropped = 0 where id = :topic

-- Claims, and the ends of deliveries.
-- name: due
-- What is due of one topic and level, in order. An instant waits for the machine's clock.
select message.id, salt, due, attempt, most, coalesce(message.body, large.body), headers, key,
    coalesce(since, due), began, expires
from message left join large on large.id = message.id
where topic = :topic and stage = 0 and level = :level and due <= :now and (instant is null or due <= :wall)
order by due, message.id
limit :limit

-- name: lease
update message set stage = 1, attempt = attempt + 1, token = ?, request = ?, until = ? where id = ?

-- name: claimed_again
-- What a request holds.
select message.id, salt, due, attempt, most, coalesce(message.body, large.body), headers, key,
    coalesce(since, due), began, token, topic.name
from message join topic on topic.id = message.topic left join large on large.id = message.id
where request = :request and stage = 1 and topic.space = :space
order by due, message.id

-- name: first_due
-- The earliest of what is pending of a topic, of each level.
select
    (select min(due) from message where topic = :topic and stage = 0 and level = 0),
    (select min(due) from message where topic = :topic and stage = 0 and level = 1),
    (select min(due) from message where topic = :topic and stage = 0 and level = 2)

-- name: while_behind
-- While the clock is behind engine time, of one topic and level: how many instants it holds back and the first of them that
-- has not expired, the first that is ready, and the first that comes later.
select
    (select count(*) from message
        where topic = :topic and stage = 0 and level = :level and due > :wall and due <= :now and instant is not null),
    (select min(due) from message
        where topic = :topic and stage = 0 and level = :level and due > :wall and due <= :now and instant is not null
        and (expires is null or expires > :now)),
    (select min(due) from message
        where topic = :topic and stage = 0 and level = :level and due <= :now and (instant is null or due <= :wall)),
    (select min(due) from message where topic = :topic and stage = 0 and level = :level and due > :now)

-- name: held
-- A message that is leased, with what its end depends on, and what its delivery is known by.
select id, topic, due, attempt, most, expires, error, salt, token
from message
where stage = 1 and id = ?

-- name: keep_highest
-- Before messages end, the highest of which has the given number.
update message_ended set highest = (select max(id) from message) where (select max(id) from message) between highest + 1 and ?

-- name: end
delete from message where id = ?

-- name: end_large
delete from large where id = ?

-- name: come_back
update message
set stage = 0, since = coalesce(since, nullif(due, :due)), instant = case when due = :due then instant end, due = :due,
    attempt = :attempt, most = :most, error = :error, began = coalesce(:began, began), token = null, request = null, until = null
where id = :id

-- name: traces
select records from bide_trace where message = ?

-- name: keep_traces
insert or replace into bide_trace (message, records) values (?, ?)

-- name: note_traces
update message set traced = 1 where id = ? and traced is null

-- name: bury
update message
set stage = 2, died = :now, error = :error, token = null, request = null, until = null
where id = :id

-- name: extend
update message set until = ? where id = ?

-- name: any_large
select exists (select 1 from large)

-- Upkeep.
-- name: ended_leases
select message.id, topic, due, attempt, most, expires, error, coalesce(began, min(token, :now)), min(token, :now)
from message
where stage = 1 and until <= :until and :space = (select space from topic where topic.id = message.topic)
order by until limit :limit

-- name: ended_lease
select id, topic, due, attempt, most, expires, error, coalesce(began, min(token, :now)), min(token, :now)
from message where id = :id and stage = 1 and until <= :now

-- name: expired
select id from message
where stage = 0 and expires is not null and expires <= :now and :space = (select space from topic where topic.id = message.topic)
order by expires limit :limit

-- name: old_dead
select message.id, topic from message
where stage = 2 and died <= :before and topic in (select id from topic where space = :space)
limit :limit

-- name: oldest_dead
select id from message where stage = 2 and topic = :topic order by died, id limit :limit

-- name: count_dropped
update topic set dropped = dropped + :count where id = :topic

-- name: topic_name
select name from topic where id = :topic

-- name: free_pages
pragma freelist_count

-- name: pages
pragma page_count

-- name: give_back
-- One page: Python 3.11 takes such a statement one step, so that a number here would not count.
pragma incremental_vacuum(1)

-- Looking.
-- name: stored_by_id
select message.id, salt, topic.name, stage, due, attempt, most, key, level, coalesce(message.body, large.body), headers,
    error, until, expires, died, request, token, instant,
    coalesce(since, due), (select records from bide_trace where bide_trace.message = message.id)
from message join topic on topic.id = message.topic left join large on large.id = message.id
where message.id = :id and salt = :salt and topic.space = :space

-- name: stored_by_key
select message.id, salt, topic.name, stage, due, attempt, most, key, level, coalesce(message.body, large.body), headers,
    error, until, expires, died, request, token, instant,
    coalesce(since, due), (select records from bide_trace where bide_trace.message = message.id)
from message join topic on topic.id = message.topic left join large on large.id = message.id
where key = :key and stage < 2 and topic.space = :space and topic.name = :name

-- name: page_pending
-- Of one level: what comes after a place, from a due time up to another.
select message.id, salt, topic.name, stage, due, attempt, most, key, level, coalesce(message.body, large.body), headers,
    error, until, expires, died, request, token, instant, coalesce(since, due)
from message join topic on topic.id = message.topic left join large on large.id = message.id
where message.topic = :topic and stage = 0 and level = :level
    and due between :begin and :end and (due, message.id) > (:instant, :id)
    and (:state is null or (due <= case when message.instant is null then :now else :wall end) = (:state = 'ready'))
order by due, message.id limit :limit

-- name: page_leased
select message.id, salt, topic.name, stage, due, attempt, most, key, level, coalesce(message.body, large.body), headers,
    error, until, expires, died, request, token, instant, coalesce(since, due)
from message join topic on topic.id = message.topic left join large on large.id = message.id
where message.topic = :topic and stage = 1 and (due, message.id) > (:instant, :id)
order by due, message.id limit :limit

-- name: page_dead
select message.id, salt, topic.name, stage, due, attempt, most, key, level, coalesce(message.body, large.body), headers,
    error, until, expires, died, request, token, instant, coalesce(since, due)
from message join topic on topic.id = message.topic left join large on large.id = message.id
where message.topic = :topic and stage = 2 and (died, message.id) > (:instant, :id)
order by died, message.id limit :limit

-- name: topics
select id, name, paused, dropped from topic where space = :space

-- name: one_topic
select id, name, paused, dropped from topic where space = :space and name = :name

-- name: count_pending
-- Of one topic and level: how many are ready, how many are not, the first due and the first to become so. Each by itself is
-- a walk along the index, in well under half the time of one walk that does all.
select
    (select count(*) from message where topic = :topic and stage = 0 and level = :level and due <= :now),
    (select count(*) from message where topic = :topic and stage = 0 and level = :level and due > :now),
    (select min(due) from message where topic = :topic and stage = 0 and level = :level),
    (select min(due) from message where topic = :topic and stage = 0 and level = :level and due > :now)

-- name: count_leased
select count(*) from message where topic = :topic and stage = 1

-- name: count_dead
select count(*) from message where topic = :topic and stage = 2

-- name: timeline
select (due - :start) * :parts / (:end - :start) as part, count(*)
from message where topic = :topic and stage = 0 and level = :level and due >= :start and due < :end
group by part

-- Topics, and engine time.
-- name: find_topic
select id, paused from topic where space = :space and name = :name

-- name: make_topic
insert into topic (space, name) values (:space, :name)

-- name: pause
update topic set paused = :paused where id = :topic

-- name: idle_topics
-- Topics that nothing would be lost with. Asked stage by stage, since there is an index for each.
select id from topic
where paused = 0 and dropped = 0
and not exists (select 1 from message where message.topic = topic.id and stage = 0)
and not exists (select 1 from message where message.topic = topic.id and stage = 1)
and not exists (select 1 from message where message.topic = topic.id and stage = 2)
limit :limit

-- name: drop_topic
delete from topic
where id = :topic and paused = 0 and dropped = 0
and not exists (select 1 from message where message.topic = topic.id and stage = 0)
and not exists (select 1 from message where message.topic = topic.id and stage = 1)
and not exists (select 1 from message where message.topic = topic.id and stage = 2)

-- name: engine
select raw, mark, claims from engine where space = ?

-- name: keep_engine
insert into engine (space, raw, mark, claims) values (?, ?, ?, ?)
on conflict (space) do update set raw = excluded.raw, mark = excluded.mark, claims = excluded.claims

-- name: data_version
pragma data_version
