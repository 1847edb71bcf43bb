-- Verbs on pending messages, dead letters and topics.

create or replace function bide.cancel_by_ids(ids bigint[], now bigint) returns text[] language plpgsql as $$
declare
    answered text[] := array_fill(null::text, array[cardinality(ids)]);
    ended bigint[] := '{}';
    each record;
begin
    for each in select * from bide.named_all(ids, now) loop
        if each.until is null then
            ended := ended || each.id;
            answered[each.number] := case when not each.over then 'cancelled' end;
        else
            answered[each.number] := 'running';
        end if;
    end loop;
    delete from bide.message m where m.id = any (ended);
    return bide.not_found(answered, ids);
end $$;

create or replace function bide.move_by_ids(
    ids bigint[], delays bigint[], ats bigint[], origins text[], longest bigint, us bigint, wall bigint, told boolean,
    seen bigint[], of_id bigint, of_due bigint
) returns text[] language plpgsql as $$
-- seen: the others are told as gone that have not these due times; a null may be any. And all of them are, unless the message of_id
-- is pending and due at of_due; null if that doesn't matter.
declare
    now bigint := us / 1000;
    holds boolean := of_id is null;
    answered text[] := array_fill(null::text, array[cardinality(ids)]);
    ended bigint[] := '{}';
    moved bigint[] := '{}';
    dues bigint[] := '{}';
    instants boolean[] := '{}';
    new_due bigint;
    sooner text[] := '{}';  -- as in move
    firsts bigint[] := '{}';
    each record;
begin
    for each in select * from bide.named_all(ids || of_id, now) loop
        if each.number > cardinality(ids) then
            holds := each.until is null and not each.over and each.due = of_due;
        elsif each.until is not null then
            answered[each.number] := 'running';
        elsif each.due <> seen[each.number] then
            answered[each.number] := 'gone';
        elsif each.over then
            ended := ended || each.id;
        else
            new_due := bide.moved_to(
                each.due, each.since, delays[each.number], ats[each.number], origins[each.number], longest, us, wall
            );
            if new_due < each.due or each.due <= now then
                sooner := sooner || each.topic;
                firsts := firsts || case when told then new_due else 0 end;
            end if;
            moved := moved || each.id;
            dues := dues || new_due;
            instants := instants || bide.is_instant(each.id, new_due, ats[each.number], origins[each.number], wall);
            answered[each.number] := 'moved';
        end if;
    end loop;
    if not holds then
        return array_fill('gone'::text, array[cardinality(ids)]);
    end if;
    delete from bide.message m where m.id = any (ended);
    update bide.message m set
        due = g.due, since = s.since, by_clock = g.instant, began = null,
        expires = coalesce(s.since, g.due) + bide.bounded(m.life, longest)
    from unnest(moved, dues, instants) as g(id, due, instant),
        lateral (select bide.since_of(g.due, g.instant, now, wall) as since offset 0) as s
    where m.id = g.id;
    perform bide.tell_first(sooner, firsts, now);
    return bide.not_found(answered, ids);
end $$;

create or replace function bide.moved_to(
    due bigint, since bigint, delay bigint, at bigint, origin text, longest bigint, us bigint, wall bigint
) returns bigint language sql immutable as $$
    select case origin
        when 'due' then least(least(due, us / 1000 + longest) + delay, us / 1000 + longest)
        when 'since' then least(us / 1000 + longest, delay + least(since, us / 1000 + longest))
        else bide.planned(delay, at, us, wall)
    end
$$;

create or replace function bide.is_instant(of_id bigint, new_due bigint, at bigint, origin text, wall bigint) returns boolean language sql as $$
-- Whether a message that is moved waits for the server's clock; null if not. What is told from an instant is one, too.
    select case when new_due > wall and (at > wall or origin in ('due', 'since') and m.by_clock) then true end
    from bide.message m where m.id = of_id
$$;

create or replace function bide.bounded(life bigint, longest bigint) returns bigint language sql immutable as $$
-- Null for one that has none. A longer one was not stored by bide, and would be out of range with a due time.
    select case when life > longest then longest else life end
$$;

create or replace function bide.tell_first(topics text[], dues bigint[], now bigint) returns void language plpgsql as $$
-- Once a topic, of what is due first.
declare
    each record;
begin
    for each in select g.of, min(g.due) as due from unnest(topics, dues) as g(of, due) group by g.of order by g.of loop
        perform bide.tell(each.of, each.due, now);
    end loop;
end $$;

create or replace function bide.cancel(request text, ids bigint[], topics text[], keys text[], given bigint)
returns table (result text) language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
    now bigint := bide.engine_us(given, true) / 1000;
    answered text[] := case when request is not null then bide.recall(request, now) end;
    takes_back boolean := bide.takes_back(request);
    n bigint;
    of_key text;
    leased boolean;
    known record;
begin
    perform bide.limit_waiting(request);
    if answered is null and bide.are_ids(ids) and not (takes_back and bide.any_over(ids, now)) then
        answered := bide.cancel_by_ids(ids, now);
        if request is not null then
            insert into bide.answer (name, born, answers) values (request, now, answered);
        else
            perform bide.refuse_unseen(answered, ids, topics, keys);
        end if;
    elsif answered is null then
        answered := array_fill(null::text, array[cardinality(ids)]);
        for n, of_key, leased in select * from bide.turns(ids, topics, keys) loop
            if takes_back then
                perform bide.take_back(ids[n], topics[n], of_key, now);
            end if;
            select f.* into known from bide.named_one(ids[n], topics[n], of_key, leased, now) as f;
            if known.id is null then
                answered[n] := case when exists (select 1 from bide.dead_letter(ids[n])) then 'dead' else 'gone' end;
            elsif known.until is not null then
                answered[n] := 'running';
            else
                delete from bide.message m where m.id = known.id;
                answered[n] := 'cancelled';
            end if;
        end loop;
        if request is not null then
            insert into bide.answer (name, born, answers) values (request, now, answered);
        else
            perform bide.refuse_unseen(answered, ids, topics, keys);
        end if;
    end if;
    return query select a from unnest(answered) as a;
end $$;

create or replace function bide.move(
    request text, ids bigint[], topics text[], keys text[], delays bigint[], ats bigint[], origins text[], longest bigint,
    given bigint
) returns table (result text) language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
-- Without origins, all delays count from now; others from the due time, or since when a message waits.
declare
    us bigint := bide.engine_us(given, true);
    now bigint := us / 1000;
    answered text[] := case when request is not null then bide.recall(request, now) end;
    wall bigint := bide.wall_ms(given, us);
    new_due bigint;
    new_instant boolean;
    starts bigint;
    sooner text[] := '{}';  -- topics of what is due sooner now, or was due already, and when that is
    dues bigint[] := '{}';
    takes_back boolean := bide.takes_back(request);
    n bigint;
    of_key text;
    leased boolean;
    known record;
begin
    perform bide.limit_waiting(request);
    if answered is null then
        if exists (select 1 from unnest(delays, ats) as g(delay, at) where g.delay > longest or g.at - now > longest) then
            raise exception 'too far' using errcode = 'BD001';
        end if;
    end if;
    if answered is null and bide.are_ids(ids) and not (takes_back and bide.any_over(ids, now)) then
        answered := bide.move_by_ids(
            ids, delays, ats, origins, longest, us, wall, request is not null, null, null, null
        );
        if request is not null then
            insert into bide.answer (name, born, answers) values (request, now, answered);
        else
            perform bide.refuse_unseen(answered, ids, topics, keys);
        end if;
    elsif answered is null then
        answered := array_fill(null::text, array[cardinality(ids)]);
        for n, of_key, leased in select * from bide.turns(ids, topics, keys) loop
            if takes_back then
                perform bide.take_back(ids[n], topics[n], of_key, now);
            end if;
            select f.* into known from bide.named_one(ids[n], topics[n], of_key, leased, now) as f;
            if known.id is null then
                answered[n] := case when exists (select 1 from bide.dead_letter(ids[n])) then 'dead' else 'gone' end;
            elsif known.until is not null then
                answered[n] := 'running';
            else
                new_due := bide.moved_to(known.due, known.since, delays[n], ats[n], origins[n], longest, us, wall);
                if new_due < known.due or known.due <= now then
                    sooner := sooner || known.topic;
                    dues := dues || case when request is not null then new_due else 0 end;
                end if;
                new_instant := bide.is_instant(known.id, new_due, ats[n], origins[n], wall);
                starts := bide.since_of(new_due, new_instant, now, wall);
                update bide.message m set
                    due = new_due, since = starts, by_clock = new_instant, began = null,
                    expires = coalesce(starts, new_due) + bide.bounded(m.life, longest)
                where m.id = known.id;
                answered[n] := 'moved';
            end if;
        end loop;
        perform bide.tell_first(sooner, dues, now);
        if request is not null then
            insert into bide.answer (name, born, answers) values (request, now, answered);
        else
            perform bide.refuse_unseen(answered, ids, topics, keys);
        end if;
    end if;
    return query select a from unnest(answered) as a;
end $$;

create or replace function bide.reschedule(
    request text, ids bigint[], topics text[], keys text[], delays bigint[], ats bigint[], longest bigint, given bigint
) returns table (result text) language sql set search_path = pg_catalog, pg_temp as $$
-- As the release before calls it.
    select m.result from bide.move(request, ids, topics, keys, delays, ats, null, longest, given) as m
$$;

create or replace function bide.requeue_over(
    request text, of text, ids bigint[], delay bigint, over_ms bigint, places int, longest bigint, given bigint
) returns table (many bigint, more boolean, keyless bigint) language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
    us bigint := bide.engine_us(given, true);
    now bigint := us / 1000;
    answered text[] := case when request is not null then bide.recall(request, now) end;
    new_due bigint;
    revived bigint[];
    each record;
begin
    perform bide.limit_waiting(request);
    if answered is not null then
        return query select answered[1]::bigint, answered[2]::boolean, answered[3]::bigint;
        return;
    end if;
    if delay + over_ms > longest then
        raise exception 'too far' using errcode = 'BD001';
    end if;
    many := 0;
    keyless := 0;
    revived := array(
        select d.id from bide.dead d
        where d.topic = of and (ids is null or d.id = any (ids)) order by d.died, d.id limit places + 1
    );
    more := cardinality(revived) > places;
    for each in  -- see turns; the first of a key gets it
        select d.* from bide.dead d where d.id = any (revived[1:places]) order by d.key, d.died, d.id for update
    loop
        if each.key is not null and exists (select 1 from bide.named_one(null, of, each.key, null, now)) then
            keyless := keyless + 1;
            each.key := null;
        end if;
        delete from bide.dead d where d.id = each.id;
        new_due := bide.due_time(delay + (array_position(revived, each.id) - 1) * over_ms / places, null, us);
        insert into bide.message (id, due, token, most, level, topic, body, headers, key, life, expires, traces)
        values (
            each.id, new_due, each.token, each.most, each.level, of, each.body, each.headers, each.key, each.life,
            new_due + bide.bounded(each.life, longest), each.traces
        );
        many := many + 1;
    end loop;
    if many > 0 then
        insert into bide.tally (topic, dead, dropped) values (of, -many, 0);
        perform bide.tell(of, bide.due_time(delay, null, us), now);
    end if;
    if request is not null then
        insert into bide.answer (name, born, answers) values (request, now, array[many::text, more::text, keyless::text]);
    end if;
    return next;
end $$;

create or replace function bide.requeue(
    request text, of text, ids bigint[], delay bigint, places int, longest bigint, given bigint
) returns table (many bigint, more boolean, keyless bigint) language sql set search_path = pg_catalog, pg_temp as $$
-- As the release before calls it.
    select * from bide.requeue_over(request, of, ids, delay, 0, places, longest, given)
$$;

create or replace function bide.purge_dead(request text, of text, ids bigint[], places int, given bigint)
returns table (many bigint, more boolean) language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
-- Drop the dead letters that have these ids.
declare
    now bigint := bide.engine_us(given, true) / 1000;
    answered text[] := case when request is not null then bide.recall(request, now) end;
    doomed bigint[];
begin
    perform bide.limit_waiting(request);
    if answered is not null then
        return query select answered[1]::bigint, answered[2]::boolean;
        return;
    end if;
    doomed := array(  -- in the order of requeue
        select d.id from bide.dead d where d.topic = of and d.id = any (ids)
        order by d.key, d.died, d.id limit places + 1 for update
    );
    delete from bide.dead d where d.id = any (doomed[1:places]);
    get diagnostics many = row_count;
    more := cardinality(doomed) > places;
    if many > 0 then
        insert into bide.tally (topic, dead, dropped) values (of, -many, 0);
    end if;
    if request is not null then
        insert into bide.answer (name, born, answers) values (request, now, array[many::text, more::text]);
    end if;
    return next;
end $$;

create or replace function bide.purge(of text, state text, places int, given bigint)
returns table (many bigint, more boolean) language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
    us bigint := bide.engine_us(given, true);
    now bigint := us / 1000;
    wall bigint := bide.wall_ms(given, us);
    ids bigint[] := '{}';
begin
    if state = 'dead' then
        ids := array(select d.id from bide.dead d where d.topic = of order by d.died, d.id limit places + 1);
        delete from bide.dead d where d.id = any (array(
            select o.id from bide.dead o where o.id = any (ids[1:places]) order by o.key, o.died, o.id for update
        ));
        get diagnostics many = row_count;
        insert into bide.tally (topic, dead, dropped)
        select of, coalesce(sum(s.dead), 0) - many, 0 from bide.sum_up(array[of]) as s;
    else
        for of_level in 0..2 loop
            ids := ids || array(
                select m.id from bide.message m
                where m.topic = of and m.level = of_level and m.until is null and (m.expires is null or m.expires > now)
                    and m.due > case state when 'scheduled' then wall else -1 end
                    and m.due <= case state when 'ready' then now else 9223372036854775807 end
                    and (m.due <= case when m.by_clock then wall else now end) = (state = 'ready')
                order by m.due, m.id limit places + 1 - cardinality(ids) for update skip locked
            );
        end loop;
        delete from bide.message m where m.id = any (ids[1:places]);
        get diagnostics many = row_count;
    end if;
    more := cardinality(ids) > places;
    return next;
end $$;

create or replace function bide.pause(of text, stop boolean) returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
-- Waits for claims that are under way: they may not have seen that the topic is paused, and nothing is handed out afterwards.
-- A lock of the table can only be taken by a role that may change it; an advisory lock by any role of the database.
begin
    perform bide.limit_waiting('');
    lock table bide.topic in exclusive mode;
    insert into bide.topic as t (name, paused) values (of, stop)
    on conflict (name) do update set paused = excluded.paused where t.paused <> excluded.paused;
    if not stop then
        perform pg_notify('bide', of || ' 0');
    end if;
end $$;
