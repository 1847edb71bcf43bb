-- The messages that a caller names: by their ids, or by their topics and keys.

create or replace function bide.named_one(of_id bigint, of text, of_key text, leased boolean, now bigint)
returns table (id bigint, topic text, due bigint, until bigint, since bigint, over boolean) language plpgsql as $$
-- The message by its id, or by its topic and key. It is locked if it is pending: one that is leased is not changed, and its holder
-- must not wait for whoever only learns that it is running. An expired one ends now. With an id, the key is the one that the message
-- had when turns gave it its place, and leased whether it was then: if it has lost its key, it is out of its place, and is told as
-- running.
#variable_conflict use_column
declare
    it bide.message;
    named bigint;
begin
    loop
        named := coalesce(of_id, (select m.id from bide.message m where m.topic = of and m.key = of_key));
        select m.* into it from bide.message m where m.id = named;
        if leased and of_key is not null and it.key is null and it.until is null then
            it.until := now;
        end if;
        exit when it.id is null or it.until is not null;
        select m.* into it from bide.message m
        where m.id = named and (of_key is null or m.key = of_key) and coalesce(m.until, -1) < 0 for update;
        if it.id is null then
            continue;  -- it has changed meanwhile
        elsif it.expires <= now then
            delete from bide.message m where m.id = it.id;
            it.id := null;
        end if;
        exit;
    end loop;
    if it.id is not null then
        return query select it.id, it.topic, it.due, it.until, coalesce(it.since, it.due), false;
    end if;
end $$;

create or replace function bide.dead_letter(of_id bigint) returns table (topic text, key text) language plpgsql as $$
-- Of a message that is dead. A role that only sends can't see it.
begin
    if has_table_privilege('bide.dead', 'select') then
        return query select d.topic, d.key from bide.dead d where d.id = of_id;
    end if;
end $$;

create or replace function bide.turns(ids bigint[], topics text[], keys text[])
returns table (number bigint, key text, leased boolean) language sql as $$
-- The places of what is named, in the order in which all calls lock messages, so that no two wait for each other: by topic and
-- key, and without a key by id. What names one message twice keeps its order. A dead letter has the place to which it may come back.
-- And the keys, and which of those that are named by ids are leased.
    select g.number, it.key, m.until >= 0 from unnest(ids, topics, keys) with ordinality as g(id, topic, key, number)
    left join bide.message m on m.id = any (array[g.id])
    left join lateral bide.dead_letter(g.id) as d on m.id is null,
        lateral (select coalesce(m.topic, d.topic, g.topic) as topic, coalesce(m.key, d.key, g.key) as key) as it
    order by it.topic collate "C", it.key collate "C", case when it.key is null then g.id end, g.number
$$;

create or replace function bide.named_all(ids bigint[], now bigint)
returns table (number bigint, id bigint, topic text, due bigint, until bigint, since bigint, over boolean) language plpgsql as $$
-- Messages by their ids. The pending ones are locked in order; `over`: it has expired. One that came back meanwhile is out of order:
-- nobody is waited for, and if somebody has it, it is told as running.
#variable_conflict use_column
declare
    pending boolean[] := array_fill(false, array[cardinality(ids)]);
begin
    for number, id, topic, due, since, over in
        select g.number, m.id, m.topic, m.due, coalesce(m.since, m.due), coalesce(m.expires <= now, false)
        from unnest(ids) with ordinality as g(id, number) join bide.message m on m.id = any (array[g.id])
        where coalesce(m.until, -1) < 0 order by m.topic, m.key, m.id for update of m
    loop
        pending[number] := true;
        return next;
    end loop;
    if true = all (pending) then
        return;
    end if;
    for number, id, topic, due, since, over in
        select g.number, m.id, m.topic, m.due, coalesce(m.since, m.due), coalesce(m.expires <= now, false)
        from unnest(ids) with ordinality as g(id, number) join bide.message m on m.id = any (array[g.id])
        where not pending[g.number] and coalesce(m.until, -1) < 0 for update of m skip locked
    loop
        pending[number] := true;
        return next;
    end loop;
    return query
        select g.number, m.id, m.topic, m.due, coalesce(m.until, now), coalesce(m.since, m.due), false
        from unnest(ids) with ordinality as g(id, number) join bide.message m on m.id = any (array[g.id])
        where not pending[g.number];
end $$;

create or replace function bide.takes_back(request text) returns boolean language sql as $$
-- Whether a call ends leases that are over itself, at each message's turn: in a caller's transaction, whose rows upkeep passes over,
-- and for a role that only sends, which can't do upkeep. All other callers do upkeep, and call again.
    select request is null or not has_table_privilege('bide.dead', 'insert')
$$;

create or replace function bide.any_over(ids bigint[], now bigint) returns boolean language sql as $$
    select exists (select 1 from bide.message m where m.id = any (ids) and m.until <= now)
$$;

create or replace function bide.take_back(of_id bigint, of text, of_key text, now bigint) returns void language plpgsql as $$
-- If the lease of a message is over, end it as upkeep does. This waits for nobody. A dead letter is counted; a topic that has too many
-- by that loses the oldest when the next one is counted. A role that only sends can't write dead letters.
declare
    it bide.message;
begin
    select m.* into it from bide.message m
    where m.id = coalesce(of_id, (select k.id from bide.message k where k.topic = of and k.key = of_key))
        and m.until <= now and m.key is not distinct from of_key and (m.attempt < m.most or has_table_privilege('bide.dead', 'insert'))
    for update skip locked;
    if it.id is not null and bide.end_lease(it.id, it.topic, it.due, it.attempt, it.most, it.error, it.began, it.token, now) then
        perform bide.count_dead(array[it.topic], 9223372036854775807);
    end if;
end $$;

create or replace function bide.are_ids(ids bigint[]) returns boolean language sql as $$
-- Whether all are named by ids, each once.
    select array_position(ids, null) is null and cardinality(ids) = (select count(distinct i) from unnest(ids) as i)
$$;

create or replace function bide.not_found(answered text[], ids bigint[]) returns text[] language sql as $$
-- The answers, with those of messages that are not there: they are dead letters, or gone.
    select coalesce(array_agg(
        coalesce(g.answer, case when exists (select 1 from bide.dead_letter(g.id)) then 'dead' else 'gone' end)
        order by g.number
    ), '{}') from unnest(answered, ids) with ordinality as g(answer, id, number)
$$;

create or replace function bide.refuse_unseen(answered text[], ids bigint[], topics text[], keys text[]) returns void
language plpgsql as $$
-- A transaction that sees only what there was when it began does not see what was sent since then, and must not be told that it is
-- gone. The unique indexes know: storing the same once more fails if there is a row that can't be seen.
declare
    each record;
    probe bigint;
begin
    if 'gone' = any (answered) and current_setting('transaction_isolation') <> 'read committed' then
        for each in select * from unnest(answered, ids, topics, keys) as g(answer, id, topic, key) loop
            continue when each.answer <> 'gone' or (each.id is null and each.key is null);
            insert into bide.message (id, due, most, level, topic, key, body)
            values (coalesce(each.id, nextval('bide.ids') * 65536), 0, 1, 0, coalesce(each.topic, ''), each.key, '')
            on conflict do nothing returning id into probe;
            delete from bide.message m where m.id = probe;
        end loop;
    end if;
exception when serialization_failure then
    raise exception 'this transaction began before the message was sent' using errcode = '40001';
end $$;
