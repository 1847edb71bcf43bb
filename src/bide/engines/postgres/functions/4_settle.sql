-- The ends of deliveries, and longer leases.

create or replace function bide.with_record(kept bytea[], record bytea) returns bytea[] language plpgsql immutable as $$
-- As traces.py has it.
declare
    room bigint := 16384;
    first int;
begin
    if record is null then
        return kept;
    end if;
    if array_ndims(kept) > 1 or array_lower(kept, 1) <> 1 then
        kept := '{}';  -- bide has never stored that
    end if;
    kept := kept || record;
    first := cardinality(kept);
    room := room - octet_length(record);
    while first > 1 and first > cardinality(kept) - 9 and room >= octet_length(kept[first - 1]) loop
        first := first - 1;
        room := room - octet_length(kept[first]);
    end loop;
    return kept[first:];
end $$;

create or replace function bide.lease_ended(attempt int, token bigint, now bigint) returns bytea language sql immutable as $$
-- The record of an attempt of which nobody has told the end.
    select convert_to(format('{"attempt":%s,"began":%s}', attempt, least(token >> 20, now)), 'UTF8')
$$;

create or replace function bide.make_dead(of_id bigint, reason text, record bytea, now bigint) returns void
language plpgsql as $$
-- Make a message a dead letter. Whoever calls this counts it.
begin
    with gone as (
        delete from bide.message m where m.id = of_id returning m.*
    )
    insert into bide.dead (id, died, due, attempt, most, level, topic, body, headers, key, life, expires, token, error, traces)
    select g.id, now, g.due, g.attempt, g.most, g.level, g.topic, g.body, g.headers, g.key, g.life, g.expires, g.token, reason,
        bide.with_record(g.traces, record)
    from gone g;
end $$;

create or replace function bide.count_dead(topics text[], dead_max bigint) returns void language plpgsql as $$
-- Count new dead letters, of which these are the topics, and drop the oldest ones of a topic that has too many.
declare
    each record;
    extra bigint;
begin
    for each in select t.of, count(*) as many from unnest(topics) as t(of) group by t.of order by t.of loop
        insert into bide.tally (topic, dead, dropped) values (each.of, each.many, 0);
        select sum(t.dead) - dead_max into extra from bide.tally t where t.topic = each.of;
        if extra > 0 then  -- others may do the same, or be about to, in transactions that last
            perform bide.drop_dead(each.of, array(
                select d.id from bide.dead d where d.topic = each.of order by d.died, d.id limit extra for update skip locked
            ));
        end if;
    end loop;
end $$;

create or replace function bide.drop_dead(of text, ids bigint[]) returns bigint language plpgsql as $$
-- Drop dead letters of a topic, and count them.
declare
    many bigint;
begin
    delete from bide.dead d where d.id = any (ids);
    get diagnostics many = row_count;
    insert into bide.tally (topic, dead, dropped) select of, -many, many where many > 0;
    return many;
end $$;

create or replace function bide.sum_up(of text[]) returns table (topic text, dead bigint, dropped bigint) language sql as $$
-- Take what is known of the dead letters of topics, to be stored again as one row of each. What others take is left to them.
    with taken as (
        delete from bide.tally t where t.ctid = any (array(
            select o.ctid from bide.tally o where o.topic = any (of) for update skip locked
        ))
        returning t.topic, t.dead, t.dropped
    )
    select t.topic, sum(t.dead)::bigint, sum(t.dropped)::bigint from taken t group by t.topic
$$;

create or replace function bide.bring_back(
    of_id bigint, new_due bigint, new_attempt int, reason text, first_began bigint, record bytea, now bigint
) returns boolean language plpgsql as $$
-- Make a message pending again; false when it would come back after its expiry, and so has ended.
begin
    delete from bide.message m where m.id = of_id and m.expires <= greatest(new_due, now);
    if found then
        return false;
    end if;
    update bide.message m set
        since = coalesce(m.since, nullif(m.due, new_due)), due = new_due,
        by_clock = case when m.due = new_due then m.by_clock end, attempt = new_attempt, error = reason, until = null,
        request = null, began = coalesce(first_began, m.began),
        traces = case when record is null then m.traces else bide.with_record(m.traces, record) end
    where m.id = of_id;
    return true;
end $$;

create or replace function bide.end_lease(
    of_id bigint, of text, due bigint, attempt int, most int, error text, began bigint, token bigint, now bigint
) returns boolean language plpgsql as $$
-- Take back a message whose lease is over; true if that was its last attempt: whoever calls this counts the dead letter.
begin
    if attempt >= most then
        perform bide.make_dead(of_id, format(
            'The lease of attempt %s, the last, ended: its worker died, froze or took too long.', attempt
        ), bide.lease_ended(attempt, token, now), now);
        return true;
    elsif bide.bring_back(
        of_id, due, attempt, error, coalesce(began, least(token >> 20, now)), bide.lease_ended(attempt, token, now), now
    ) then
        perform bide.tell(of, due, now);
    end if;
    return false;
end $$;

create or replace function bide.end_deliveries(
    request text, ids bigint[], topics text[], tokens bigint[], verdicts text[], delays bigint[], errors text[], begans bigint[],
    traces bytea[], attempts int[], patient boolean, dead_max bigint, given bigint
) returns table (ended text) language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan as $$
-- Without verdicts, all are done. Attempts: a retry gives the message so many in all, which it keeps. Aside: a release that comes back before it expires. What another transaction has locked is not
-- waited for, unless `patient`: it is as it was, which is told by `locked`. Where statistics say that the table is empty, though it
-- is full of rows that have just ended, the planner would walk a whole index for `m.id = g.id` or for `m.until is not null`; `any`
-- and `coalesce` leave it only the id.
declare
    us bigint := bide.engine_us(given, true);
    now bigint := us / 1000;
    answered text[] := case when request is not null and verdicts is not null then bide.recall(request, now) end;
    done bigint[];  -- the places of those
    known text[];
    buried text[] := '{}';
    setting text;
    new_due bigint;
    each record;
    held record;
begin
    if answered is not null then
        return query select a from unnest(answered) as a;
        return;
    end if;
    if request is not null then
        setting := set_config('lock_timeout', '1s', true);  -- as limit_waiting does
    end if;
    answered := array_fill(null::text, array[cardinality(ids)]);
    if patient then  -- see turns
        perform from unnest(ids, topics, tokens) as g(id, topic, token)
        join bide.message m on m.id = any (array[g.id]) and m.topic = coalesce(g.topic, topics[1]) and m.token = g.token
        where coalesce(m.until, -1) >= 0 order by m.topic, m.key, m.id for update of m;
    end if;
    if verdicts is null then
        with gone as (  -- xmax names who has locked this version: of most, only the claim that made it, or nobody
            delete from bide.message m using unnest(ids, topics, tokens) with ordinality as g(id, topic, token, place)
            where m.id = any (array[g.id]) and m.topic = coalesce(g.topic, topics[1]) and m.token = g.token
                and coalesce(m.until, -1) >= 0 and (patient or m.xmax in ('0', m.xmin))
                and (end_deliveries.request is null or not exists (select 1 from bide.answer a where a.name = end_deliveries.request))  -- see the else
            returning g.place
        )
        select array_agg(gone.place) into done from gone;
        if cardinality(done) = cardinality(ids) then
            answered := array_fill('done'::text, array[cardinality(ids)]);
        else  -- some may have ended when this was asked before
            known := case when request is not null then bide.recall(request, now) end;
            answered := array(
                select case when g.place = any (done) then 'done' else known[g.place] end
                from generate_series(1, cardinality(ids)) as g(place) order by g.place
            );
            if known is not null then
                update bide.answer a set answers = answered where a.name = request and done is not null;
                return query select a from unnest(answered) as a;
                return;
            end if;
        end if;
    end if;
    if array_position(answered, null) is not null then
        for each in
            select g.*, coalesce(g.topic, topics[1]) as of
            from unnest(ids, topics, tokens, verdicts, delays, errors, begans, traces, attempts, answered) with ordinality
                as g(id, topic, token, verdict, delay, error, began, trace, most, answer, place)
            where g.answer is null
        loop
            select m.* into held from bide.message m
            where m.id = each.id and m.topic = each.of and m.token = each.token and coalesce(m.until, -1) >= 0
            for update skip locked;
            if held.id is null then
                ended := case when not patient and exists (
                    select 1 from bide.message m
                    where m.id = each.id and m.topic = each.of and m.token = each.token and coalesce(m.until, -1) >= 0
                ) then 'locked' else 'lost' end;
            elsif coalesce(each.verdict, 'done') = 'done' then
                delete from bide.message m where m.id = each.id;
                ended := 'done';
            elsif each.verdict = 'dead' or (each.verdict = 'retry' and held.attempt >= coalesce(each.most, held.most)) then
                perform bide.make_dead(each.id, each.error, each.trace, now);
                buried := buried || each.of;
                ended := 'dead';
            else
                new_due := case
                    when each.verdict in ('release', 'aside') and coalesce(each.delay, 0) = 0 then held.due
                    else bide.due_time(each.delay, null, us)
                end;
                if each.verdict = 'aside' and held.expires - 1 > now then  -- else that was its last time
                    new_due := least(new_due, held.expires - 1);
                end if;
                if each.verdict = 'retry' and each.most <> held.most then
                    update bide.message m set most = each.most where m.id = each.id;
                end if;
                perform bide.tell(each.of, case when request is not null then new_due else 0 end, now);
                ended := case when bide.bring_back(
                    each.id, new_due, held.attempt - (each.verdict in ('release', 'aside'))::int,
                    case when each.verdict in ('release', 'aside') then held.error else each.error end, each.began,
                    case when each.verdict = 'retry' then each.trace end, now
                ) then 'scheduled' else 'expired' end;
            end if;
            answered[each.place] := ended;
        end loop;
    end if;
    if buried <> '{}' then
        perform bide.count_dead(buried, dead_max);
    end if;
    if request is not null then
        insert into bide.answer (name, born, answers) values (request, now, answered);
    elsif 'lost' = any (answered) and current_setting('transaction_isolation') <> 'read committed' and exists (
        -- A token holds the time of its claim. One of after this transaction began may be of a claim that it can't see.
        select 1 from unnest(tokens, answered) as g(token, ended)
        where g.ended = 'lost'
            and (g.token >> 20) * 1000 >= us - extract(epoch from clock_timestamp() - transaction_timestamp()) * 1000000
    ) then
        raise exception 'this transaction began before the message was received' using errcode = '40001';
    end if;
    foreach ended in array answered loop
        return next;
    end loop;
end $$;

create or replace function bide.end_each(
    request text, ids bigint[], topics text[], tokens bigint[], verdicts text[], delays bigint[], errors text[], begans bigint[],
    traces bytea[], patient boolean, dead_max bigint, given bigint
) returns table (ended text) language sql set search_path = pg_catalog, pg_temp as $$
-- As the release before calls it: it gives no message more attempts.
    select e.ended from bide.end_deliveries(
        request, ids, topics, tokens, verdicts, delays, errors, begans, traces, null, patient, dead_max, given
    ) as e
$$;

create or replace function bide.conclude(
    request text, ids bigint[], topics text[], tokens bigint[], verdicts text[], delays bigint[], errors text[], begans bigint[],
    traces bytea[], dead_max bigint, given bigint
) returns table (ended text) language sql set search_path = pg_catalog, pg_temp as $$
-- As the release before calls it: it can't be told that a message is locked.
    select e.ended from bide.end_each(
        request, ids, topics, tokens, verdicts, delays, errors, begans, traces, true, dead_max, given
    ) as e
$$;

create or replace function bide.settle(
    request text, ids bigint[], topics text[], tokens bigint[], verdicts text[], delays bigint[], errors text[],
    dead_max bigint, given bigint
) returns table (ended text) language sql set search_path = pg_catalog, pg_temp as $$
-- As the release before calls it.
    select c.ended from bide.conclude(request, ids, topics, tokens, verdicts, delays, errors, null, null, dead_max, given) as c
$$;

create or replace function bide.extend(ids bigint[], topics text[], tokens bigint[], lease bigint, given bigint)
returns table (id bigint, topic text, token bigint) language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan as $$
-- The deliveries that are still held. What another transaction has locked is not waited for, as it may last: its lease is as it
-- was, and its token comes back negative.
#variable_conflict use_column
declare
    now bigint := bide.engine_us(given, true) / 1000;
    renewed int;
begin
    perform set_config('synchronous_commit', 'off', true);
    return query
        with free as (
            select m.id from unnest(ids, topics, tokens) as g(id, topic, token)
            join bide.message m on m.id = any (array[g.id]) and m.topic = coalesce(g.topic, topics[1]) and m.token = g.token
            where coalesce(m.until, -1) >= 0 for update of m skip locked
        )
        update bide.message m set until = now + lease from free where m.id = any (array[free.id])
        returning m.id, m.topic, m.token;
    get diagnostics renewed = row_count;
    if renewed < cardinality(ids) then
        return query
            select m.id, m.topic, -m.token from unnest(ids, topics, tokens) as g(id, topic, token)
            join bide.message m on m.id = any (array[g.id]) and m.topic = coalesce(g.topic, topics[1]) and m.token = g.token
            where coalesce(m.until, -1) >= 0 and m.xmin <> pg_current_xact_id()::xid;
    end if;
end $$;
