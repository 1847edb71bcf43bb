-- name: ended_leases
select message.id, topic, due, attempt, most, expires, error
from message
where stage = 1 and until <= :until and +topic in (select id from topic where space = :space)
order by until limit :limit

-- name: expired
-- A plus before the topic keeps SQLite from walking all that is pending: the index by expiry is the short way.
select id from message
where stage = 0 and expires is not null and expires <= :now and +topic in (select id from topic where space = :space)
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
