-- Accepting messages.

create or replace function bide.put_named(
    ids bigint[], topics text[], bodies bytea[], dues bigint[], levels int[], mosts int[], lives bigint[], headers text[],
    operations text[], now bigint, wall bigint, instants boolean[]
) returns text[] language plpgsql as $$
-- Messages without a key, each with an operation of its own, all at once. Gives what put answers of each.
declare
    answers text[];
    stored bigint;
    fresh bigint;
begin
    select array_agg(case when a.born > now - 600000 then a.answers[1] end order by g.number) into answers
    from unnest(operations) with ordinality as g(operation, number) left join bide.answer a on a.name = g.operation;
    fresh := cardinality(array_positions(answers, null));
    if fresh > 0 then
        insert into bide.message (id, due, most, level, topic, body, headers, life, expires, since, by_clock)
        select g.id, g.due, g.most, g.level, g.topic, g.body, g.headers, g.life, coalesce(s.since, g.due) + g.life, s.since, g.instant
        from unnest(ids, topics, bodies, dues, levels, mosts, lives, headers, answers, instants)
            as g(id, topic, body, due, level, most, life, headers, answer, instant),
            lateral (select bide.since_of(g.due, g.instant, now, wall) as since offset 0) as s
        where g.answer is null;
        insert into bide.answer as a (name, born, answers)
        select g.operation, now, array[concat(g.id, ' ', g.due, ' created')]
        from unnest(operations, ids, dues, answers) as g(operation, id, due, answer)
        where g.answer is null order by g.operation
        on conflict (name) do update set born = excluded.born, answers = excluded.answers where a.born <= now - 600000;
        get diagnostics stored = row_count;
        if stored < fresh then
            raise exception 'the same operation was done meanwhile' using errcode = '40001';
        end if;
    end if;
    return array(
        select coalesce(g.answer, concat(g.id, ' ', g.due, ' created'))
        from unnest(answers, ids, dues) with ordinality as g(answer, id, due, number) order by g.number
    );
end $$;

create or replace function bide.put_free(
    ids bigint[], topics text[], bodies bytea[], delays bigint[], ats bigint[], levels int[], mosts int[], lives bigint[],
    headers text[], keys text[], us bigint, wall bigint
) returns text[] language plpgsql as $$
-- Store all messages whose keys are free, at once, in the order of their keys. Pending ones that hold a key are locked meanwhile,
-- in the same order. Gives what put answers of each; null of those that find their key held, also by one here.
declare
    now bigint := us / 1000;
    answers text[];
begin
    with made as (
        insert into bide.message as m (id, due, most, level, topic, body, headers, key, life, expires, since, by_clock)
        select
            g.id, d.due, coalesce(g.most, mosts[1]), coalesce(g.level, levels[1], 1), g.of, g.body, g.headers, g.key, g.life,
            coalesce(s.since, d.due) + g.life, s.since, case when g.at > wall then true end
        from (
            select u.*, coalesce(u.topic, topics[1]) as of,
                row_number() over (partition by coalesce(u.topic, topics[1]), u.key order by u.number) as nth
            from unnest(ids, bodies, topics, delays, ats, levels, mosts, lives, headers, keys) with ordinality
                as u(id, body, topic, delay, at, level, most, life, headers, key, number)
        ) as g,
            lateral (select bide.planned(coalesce(g.delay, delays[1]), g.at, us, wall) as due offset 0) as d,
            lateral (select bide.since_of(d.due, g.at > wall, now, wall) as since offset 0) as s
        where g.key is null or g.nth = 1
        order by g.of collate "C", g.key collate "C"
        on conflict (topic, key) where key is not null do update set key = excluded.key where false  -- this locks it
        returning m.id
    )
    select array_agg(
        case when g.id in (select made.id from made)
            then concat(g.id, ' ', bide.planned(coalesce(g.delay, delays[1]), g.at, us, wall), ' created')
        end order by g.number
    )
    into answers from unnest(ids, delays, ats) with ordinality as g(id, delay, at, number);
    return answers;
end $$;

create or replace function bide.accept(
    request text, topics text[], bodies bytea[], delays bigint[], ats bigint[], levels int[], mosts int[], lives bigint[],
    headers text[], keys text[], rules text[], max_waits bigint[], largests int[], unique_fors bigint[], pasts text[],
    operations text[], places int[], withins bigint[], longest bigint, quiet text[], given bigint
) returns table (id bigint, due bigint, outcome text) language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan as $$
-- An array that is null stands for the default; one that is shorter than `bodies`, for its first element. `rules` are what
-- if_exists says. Quiet topics are those of which this client has just told that a message is due.
declare
    us bigint := bide.engine_us(given, true);
    now bigint := us / 1000;
    wall bigint := bide.wall_ms(given, us);
    answered text[] := case when request is not null then bide.recall(request, now) end;
    known text[];
    ids bigint[];
    answer text;
    numbers bigint[];
    together boolean[];
    each record;
begin
    perform bide.limit_waiting(request);
    if cardinality(array_remove(answered, null)) = cardinality(bodies) then
        return query select split_part(a, ' ', 1)::bigint, split_part(a, ' ', 2)::bigint, split_part(a, ' ', 3)
            from unnest(answered) as a;
        return;
    elsif answered is not null then  -- some of them were sent again, by the operations of a lost answer, while this was under way
        select
            array_agg(case when operations[n] is null then n else places[n] end order by n),
            array_agg(coalesce(operations[n], request) order by n)
        into places, operations from generate_series(1, cardinality(bodies)) as n;
        request := null;
    end if;
    if exists (select 1 from unnest(delays, ats) as g(delay, at) where g.delay > longest or g.at - now > longest) then
        raise exception 'A message can''t be due more than a hundred years from now.' using errcode = 'BD001';
    end if;
    if keys is null and operations is null then
        return query
            with made as (
                insert into bide.message as m (id, due, most, level, topic, body, headers, life, expires, since, by_clock)
                select
                    nextval('bide.ids') * 65536 + floor(random() * 65536)::bigint, d.due, coalesce(g.most, mosts[1]),
                    coalesce(g.level, levels[1], 1), coalesce(g.topic, topics[1]), g.body, g.headers, g.life,
                    coalesce(s.since, d.due) + g.life, s.since, case when g.at > wall then true end
                from unnest(bodies, topics, delays, ats, levels, mosts, lives, headers)
                    as g(body, topic, delay, at, level, most, life, headers),
                    lateral (select bide.planned(coalesce(g.delay, delays[1]), g.at, us, wall) as due offset 0) as d,
                    lateral (select bide.since_of(d.due, g.at > wall, now, wall) as since offset 0) as s
                returning m.id, m.due
            ), kept as (
                insert into bide.answer (name, born, answers)
                select request, now, (select array_agg(m.id || ' ' || m.due || ' created') from made m)
                where request is not null
            )
            select m.id, m.due, 'created' from made m;
    else
        -- In the order of their keys, as all others do it (see turns), so that no two wait for each other. The ids have the
        -- messages' order.
        ids := array(
            select nextval('bide.ids') * 65536 + floor(random() * 65536)::bigint from generate_series(1, cardinality(bodies))
        );
        if cardinality(bodies) > 1 and num_nonnulls(variadic operations) = 0 and not exists (
            select 1 from unnest(topics, keys) as g(topic, key)
            left join bide.message m on m.topic = coalesce(g.topic, topics[1]) and m.key = g.key
            where coalesce(num_nonnulls(variadic max_waits), 0) + coalesce(num_nonnulls(variadic unique_fors), 0)
                    + coalesce(num_nonnulls(variadic pasts), 0) > 0
                or coalesce(m.until, -1) >= 0  -- that one goes on, and is not locked
        ) then
            answered := bide.put_free(
                ids, topics, bodies, delays, ats, levels, mosts, lives, headers, keys, us, wall
            );
        else
            -- Those that need no look at others go first, all at once: no key, no past, and an operation that is only here.
            answered := array_fill(null::text, array[cardinality(bodies)]);
            together := array(
                select coalesce(
                    g.operation is not null and g.key is null and g.past is null and g.place = 1
                    and g.operation not like '~%' and count(*) over (partition by g.operation) = 1, false
                )
                from unnest(operations, keys, pasts, places) with ordinality as g(operation, key, past, place, number)
                order by g.number
            );
            if true = any (together) then
                select
                    array_agg(g.number order by g.number),
                    bide.put_named(
                        array_agg(g.id order by g.number), array_agg(coalesce(g.topic, topics[1]) order by g.number),
                        array_agg(g.body order by g.number),
                        array_agg(bide.planned(coalesce(g.delay, delays[1]), g.at, us, wall) order by g.number),
                        array_agg(coalesce(g.level, levels[1], 1) order by g.number),
                        array_agg(coalesce(g.most, mosts[1]) order by g.number), array_agg(g.life order by g.number),
                        array_agg(g.headers order by g.number), array_agg(g.operation order by g.number), now,
                        wall, array_agg(case when g.at > wall then true end order by g.number)
                    )
                into numbers, known
                from unnest(ids, bodies, topics, delays, ats, levels, mosts, lives, headers, operations, together) with ordinality
                    as g(id, body, topic, delay, at, level, most, life, headers, operation, together, number)
                where g.together;
                for place in 1..cardinality(numbers) loop
                    answered[numbers[place]] := known[place];
                end loop;
            end if;
        end if;
        for each in
            select g.*, coalesce(g.topic, topics[1]) as of, bide.planned(coalesce(g.delay, delays[1]), g.at, us, wall) as due
            from unnest(
                ids, bodies, topics, delays, ats, levels, mosts, lives, headers, keys, rules, max_waits, largests, unique_fors,
                pasts, operations, places, withins, answered
            ) with ordinality as g(
                id, body, topic, delay, at, level, most, life, headers, key, rule, max_wait, largest, unique_for,
                past, operation, place, within, answer, number
            )
            where g.answer is null
            order by coalesce(g.topic, topics[1]) collate "C", g.key collate "C",
                case when g.key is null then g.operation end, g.number
        loop
            known := case when each.operation is not null then bide.recall(each.operation, now) end;
            if known[each.place] is not null then
                answer := known[each.place];
            else
                select p.id || ' ' || p.due || ' ' || p.outcome into answer from bide.accept_for_a_time(
                    each.id, each.of, each.body, each.due, coalesce(each.level, levels[1], 1), coalesce(each.most, mosts[1]),
                    each.life, each.headers, each.key, coalesce(each.rule, 'keep'), each.max_wait, each.largest,
                    each.unique_for, each.past::jsonb, each.within, us, wall, case when each.at > wall then true end
                ) as p;
                if each.operation is not null then
                    known[each.place] := answer;
                    insert into bide.answer as a (name, born, answers) values (each.operation, now, known)
                    on conflict (name) do update set answers[each.place] = excluded.answers[each.place]
                    where a.answers[each.place] is null;
                    if not found then
                        raise exception 'the same operation was done meanwhile' using errcode = '40001';
                    end if;
                end if;
            end if;
            answered[each.number] := answer;
        end loop;
        if request is not null then
            insert into bide.answer (name, born, answers) values (request, now, answered);
        end if;
        return query select split_part(a, ' ', 1)::bigint, split_part(a, ' ', 2)::bigint, split_part(a, ' ', 3)
            from unnest(answered) as a;
    end if;
    for each in  -- after all waits, so that `tell` knows how long they were
        select coalesce(g.topic, topics[1]) as of, min(bide.planned(coalesce(g.delay, delays[1]), g.at, us, wall)) as first
        from unnest(bodies, topics, delays, ats) as g(body, topic, delay, at) group by 1
    loop
        if each.first > now or each.of <> all (quiet) then
            perform bide.tell(each.of, case when request is not null then each.first else 0 end, now);
        end if;
    end loop;
end $$;

create or replace function bide.put(
    request text, topics text[], bodies bytea[], delays bigint[], ats bigint[], levels int[], mosts int[], lives bigint[],
    headers text[], keys text[], hows text[], operations text[], places int[], withins bigint[], longest bigint,
    quiet text[], given bigint
) returns table (id bigint, due bigint, outcome text) language sql set search_path = pg_catalog, pg_temp as $$
-- As the release before calls it: `hows` have what if_exists says and, after a space, what it needs.
    select a.* from (
        select
            array_agg(case h.rule when 'past' then 'keep' else h.rule end order by h.number) as rules,
            array_agg(case h.rule when 'later' then h.more::bigint end order by h.number) as max_waits,
            array_agg(case h.rule when 'merge' then h.more::int end order by h.number) as largests,
            array_agg(case when h.rule in ('keep', 'error') then h.more::bigint end order by h.number) as unique_fors,
            array_agg(case h.rule when 'past' then h.more end order by h.number) as pasts
        from (
            select split_part(u.how, ' ', 1) as rule, nullif(regexp_replace(u.how, '^[a-z]+ ?', ''), '') as more, u.number
            from unnest(hows) with ordinality as u(how, number)
        ) as h
    ) as g, bide.accept(
        request, topics, bodies, delays, ats, levels, mosts, lives, headers, keys, g.rules, g.max_waits, g.largests,
        g.unique_fors, g.pasts, operations, places, withins, longest, quiet, given
    ) as a
$$;

create or replace function bide.put_plain(
    request text, of text, new_body bytea, delay bigint, at bigint, new_level int, new_most int, new_life bigint, new_headers text,
    longest bigint, quiet boolean, given bigint, out id bigint, out due bigint, out outcome text
) language plpgsql
set search_path = pg_catalog, pg_temp set lock_timeout = '1s'
set jit = off set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan as $$
-- One message without a key, an operation or a past, and not in a caller's transaction: what put does, in fewer statements. Its
-- request is stored first. Who repeats it waits there for the first one, and is told what it was told.
declare
    us bigint := bide.engine_us(given, true);
    now bigint := us / 1000;
    wall bigint := bide.wall_ms(given, us);
    instant boolean := case when at > wall then true end;
    starts bigint;
    known text[];
begin
    if delay > longest or at - now > longest then
        raise exception 'A message can''t be due more than a hundred years from now.' using errcode = 'BD001';
    end if;
    id := nextval('bide.ids') * 65536 + floor(random() * 65536)::bigint;
    due := bide.planned(delay, at, us, wall);
    outcome := 'created';
    loop
        insert into bide.answer (name, born, answers) values (request, now, array[concat(id, ' ', due, ' created')])
        on conflict do nothing;
        exit when found;
        known := bide.recall(request, now);
        if known is not null then
            id := split_part(known[1], ' ', 1);
            due := split_part(known[1], ' ', 2);
            outcome := split_part(known[1], ' ', 3);
            return;
        end if;
    end loop;
    starts := bide.since_of(due, instant, now, wall);
    insert into bide.message (id, due, most, level, topic, body, headers, life, expires, since, by_clock)
    values (id, due, new_most, new_level, of, new_body, new_headers, new_life, coalesce(starts, due) + new_life, starts, instant);
    if due > now or not quiet then
        perform bide.tell(of, due, now);
    end if;
end $$;
