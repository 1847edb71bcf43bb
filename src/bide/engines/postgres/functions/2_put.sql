-- Accepting messages.

create or replace function bide.joined(held bytea, new bytea) returns bytea language sql immutable as $$
-- Two lists in JSON as one, joined as texts; null when the first is none. merge.py is the same for Python.
    select case
        when held = '[]' then new
        when octet_length(held) > 2 and get_byte(held, 0) = 91 and get_byte(held, octet_length(held) - 1) = 93
            and get_byte(held, octet_length(held) - 2) not in (9, 10, 13, 32)
            then substring(held from 1 for octet_length(held) - 1) || ',' || substring(new from 2)
    end
$$;

create or replace function bide.put_one(
    new_id bigint, of text, new_body bytea, new_due bigint, new_level int, new_most int, new_life bigint, new_headers text,
    new_key text, how text, within_id bigint, now bigint, wall bigint, new_instant boolean,
    out id bigint, out due bigint, out outcome text
) language plpgsql as $$
-- A message that may have a key, which another one may hold. `how` is what if_exists says; `merge` and a number of bytes: the
-- largest body that holds several; `later` and two numbers: the longest wait, and now, rounded up. When the first of such sends was, that is in the first header, which has a place for it.
-- `past` and a JSON object: `keep`, of a message that had attempts elsewhere, or is a dead letter.
declare
    past jsonb;
    records bytea[];
    holder bide.message;
    longest bigint;
    first bigint;
    largest int;
    gathered bytea;
    starts bigint;  -- its life
begin
    if how like 'merge %' then
        largest := split_part(how, ' ', 2);
        how := 'merge';
    elsif how like 'later %' then
        longest := split_part(how, ' ', 2);
        first := split_part(how, ' ', 3);
        how := 'later';
        new_headers := overlay(new_headers placing lpad(first::text, 13, '0') from 16);
        if new_due > first + longest then
            new_due := first + longest;
            new_instant := null;
        end if;
    elsif how like 'past %' then
        past := substring(how from 6);
        how := 'keep';
        select array_agg(decode(r.hex, 'hex') order by r.place) into records
        from jsonb_array_elements_text(past->'traces') with ordinality as r(hex, place);
    end if;
    due := new_due;
    if (past->>'dead')::boolean then
        insert into bide.dead (id, died, due, attempt, most, level, topic, body, headers, key, life, expires, error, traces)
        values (
            new_id, now, new_due, (past->>'attempt')::int, new_most, new_level, of, new_body, new_headers, new_key, new_life,
            coalesce(bide.since_of(new_due, new_instant, now, wall), new_due) + new_life, past->>'error', records
        );
        perform bide.count_dead(array[of], (past->>'most')::bigint);
        id := new_id;
        outcome := 'created';
        return;
    end if;
    loop
        if new_key is not null then
            select m.* into holder from bide.message m where m.topic = of and m.key = new_key;
            if holder.until is not null and how in ('keep', 'error') and holder.id is distinct from within_id then
                id := holder.id;  -- it is running, and not locked: nothing of it is changed
                due := holder.due;
                outcome := case how when 'keep' then 'kept' else 'exists' end;
                return;
            elsif holder.id is not null then
                select m.* into holder from bide.message m where m.topic = of and m.key = new_key for update;
            end if;
            if holder.id is not null and holder.until is null and holder.expires <= now then
                delete from bide.message m where m.id = holder.id;
            elsif holder.id is not null then
                if how in ('keep', 'error') and (holder.until is null or holder.id is distinct from within_id) then
                    id := holder.id;
                    due := holder.due;
                    outcome := case how when 'keep' then 'kept' else 'exists' end;
                    return;
                elsif holder.until is null and how = 'merge' and holder.attempt = 0 then
                    gathered := (select bide.joined(m.body, new_body) from bide.message m where m.id = holder.id);
                    if gathered is null or octet_length(gathered) <= largest then
                        update bide.message m set body = gathered where m.id = holder.id and gathered is not null;
                        id := holder.id;
                        due := holder.due;
                        outcome := case when gathered is null then 'exists' else 'merged' end;
                        return;
                    end if;
                elsif holder.until is null and how <> 'merge' then
                    id := holder.id;
                    outcome := case how when 'later' then 'postponed' else 'replaced' end;
                    if how = 'later' then
                        if longest is not null and holder.attempt = 0 then  -- a delivery ends what was sent before
                            first := substring(holder.headers from '^{"bide-first":"(\d{13})"');
                            if first is not null then
                                new_headers := overlay(new_headers placing lpad(first::text, 13, '0') from 16);
                                if new_due > first + longest then
                                    new_due := first + longest;
                                    new_instant := null;
                                end if;
                            end if;
                        end if;
                        due := greatest(new_due, holder.due);
                        -- If one of the two is an instant, so is the later: rather late than early.
                        new_instant := case when due > wall and (new_instant or holder.by_clock) then true end;
                    end if;
                    starts := bide.since_of(due, new_instant, now, wall);
                    update bide.message m set
                        level = new_level, due = put_one.due, most = new_most, body = new_body, headers = new_headers,
                        life = new_life, expires = coalesce(starts, put_one.due) + new_life, since = starts, by_clock = new_instant,
                        began = null, traces = null, attempt = 0, error = null
                    where m.id = holder.id;
                    return;
                end if;
                update bide.message m set key = null where m.id = holder.id;  -- it can't be changed, and goes on without
            end if;
        end if;
        starts := bide.since_of(new_due, new_instant, now, wall);
        insert into bide.message as m (
            id, due, most, level, topic, body, headers, key, life, expires, attempt, error, traces, since, by_clock
        ) values (
            new_id, new_due, new_most, new_level, of, new_body, new_headers, new_key, new_life,
            coalesce(starts, new_due) + new_life, coalesce((past->>'attempt')::int, 0), past->>'error', records, starts, new_instant
        )
        on conflict (topic, key) where key is not null do nothing
        returning m.id into id;
        if id is not null then
            outcome := 'created';
            return;
        end if;
    end loop;
end $$;

create or replace function bide.put_only(
    new_id bigint, of text, new_body bytea, new_due bigint, new_level int, new_most int, new_life bigint, new_headers text,
    new_key text, how text, within_id bigint, now bigint, wall bigint, new_instant boolean,
    out id bigint, out due bigint, out outcome text
) language plpgsql as $$
-- The same, where if_exists is `keep` or `error` with a number of ms: for so long it is the only one of its key. That is remembered as an operation
-- that has no name, and whose birth is such that it is over then.
declare
    period bigint;
    known text;
begin
    period := split_part(how, ' ', 2);
    how := split_part(how, ' ', 1);
    loop
        insert into bide.answer as a (name, born, answers)
        values (concat(of, E'\n', new_key, E'\n'), now + period - 600000, array[concat(new_id, ' ', new_due, ' duplicate')])
        on conflict (name) do update set born = excluded.born, answers = excluded.answers where a.born <= now - 600000;
        if found then
            select p.* into id, due, outcome from bide.put_one(
                new_id, of, new_body, new_due, new_level, new_most, new_life, new_headers, new_key, how, within_id, now,
                wall, new_instant
            ) as p;
            if outcome <> 'created' then  -- another message holds the key, and was not sent for a time
                delete from bide.answer a where a.name = concat(of, E'\n', new_key, E'\n');
            end if;
            return;
        end if;
        select a.answers[1] into known from bide.answer a where a.name = concat(of, E'\n', new_key, E'\n');
        if known is not null then
            id := split_part(known, ' ', 1);
            due := split_part(known, ' ', 2);
            outcome := case how when 'keep' then 'duplicate' else 'exists' end;
            return;
        end if;
    end loop;
end $$;

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

create or replace function bide.put(
    request text, topics text[], bodies bytea[], delays bigint[], ats bigint[], levels int[], mosts int[], lives bigint[],
    headers text[], keys text[], hows text[], operations text[], places int[], withins bigint[], longest bigint,
    quiet text[], given bigint
) returns table (id bigint, due bigint, outcome text) language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
-- An array that is null stands for the default; one that is shorter than `bodies`, for its first element. Quiet topics are those
-- of which this client has just told that a message is due.
declare
    us bigint := bide.engine_us(given, true);
    now bigint := us / 1000;
    wall bigint := bide.wall_ms(given, us);
    answered text[] := case when request is not null then bide.recall(request, now) end;
    known text[];
    ids bigint[];
    answer text;
    numbers bigint[] := '{}';
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
        answered := '{}';
        -- Those that need no look at others go first, all at once: no key, no past, and an operation that is only here.
        together := array(
            select coalesce(
                g.operation is not null and g.key is null and coalesce(g.how, '') not like 'past %' and g.place = 1
                and g.operation not like '~%' and count(*) over (partition by g.operation) = 1, false
            )
            from unnest(operations, keys, hows, places) with ordinality as g(operation, key, how, place, number)
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
            into numbers, answered
            from unnest(ids, bodies, topics, delays, ats, levels, mosts, lives, headers, operations, together) with ordinality
                as g(id, body, topic, delay, at, level, most, life, headers, operation, together, number)
            where g.together;
        end if;
        for each in
            select g.*, coalesce(g.topic, topics[1]) as of, bide.planned(coalesce(g.delay, delays[1]), g.at, us, wall) as due
            from unnest(
                ids, bodies, topics, delays, ats, levels, mosts, lives, headers, keys, hows, operations, places, withins, together
            ) with ordinality as g(
                id, body, topic, delay, at, level, most, life, headers, key, how, operation, place, within, together, number
            )
            where not g.together
            order by coalesce(g.topic, topics[1]) collate "C", g.key collate "C",
                case when g.key is null then g.operation end, g.number
        loop
            known := case when each.operation is not null then bide.recall(each.operation, now) end;
            if known[each.place] is not null then
                answer := known[each.place];
            else
                if each.how like 'keep %' or each.how like 'error %' then
                    select p.id || ' ' || p.due || ' ' || p.outcome into answer from bide.put_only(
                        each.id, each.of, each.body, each.due, coalesce(each.level, levels[1], 1), coalesce(each.most, mosts[1]),
                        each.life, each.headers, each.key, each.how,
                        each.within, now, wall, case when each.at > wall then true end
                    ) as p;
                else
                    select p.id || ' ' || p.due || ' ' || p.outcome into answer from bide.put_one(
                        each.id, each.of, each.body, each.due, coalesce(each.level, levels[1], 1), coalesce(each.most, mosts[1]),
                        each.life, each.headers, each.key, case when each.how like 'later %' then concat(each.how, ' ', (us + 999) / 1000) else coalesce(each.how, 'keep') end,
                        each.within, now, wall, case when each.at > wall then true end
                    ) as p;
                end if;
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
            answered := answered || answer;
            numbers := numbers || each.number;
        end loop;
        select array_agg(a.answer order by a.number) into answered from unnest(answered, numbers) as a(answer, number);
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
