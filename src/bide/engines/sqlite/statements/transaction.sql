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
