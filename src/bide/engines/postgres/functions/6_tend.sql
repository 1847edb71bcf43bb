-- Upkeep, a bounded piece at a time.

create or replace function bide.tend(
    budget int, ended_by bigint, dead_for bigint, dead_max bigint, first bigint, given bigint
) returns table (returned bigint, buried bigint, expired bigint, dropped bigint, more boolean, at_ bigint, took int) language plpgsql
set search_path = pg_catalog, pg_temp set lock_timeout = '1s'
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
-- Nothing is looked for that ended before the first instant. The last column is how many µs all this took. A row with a longer topic
-- than bide's was written by hand; it may be too long for an index or a notification, which would end all of this.
declare
    now bigint := bide.engine_us(given, true) / 1000;
    ids bigint[];
    topics text[] := '{}';
    each record;
    forgotten int;
begin
    returned := 0;
    dropped := 0;
    for each in
        select m.id, m.topic, m.due, m.attempt, m.most, m.error, m.began, m.token from bide.message m
        where m.until > first and m.until <= least(now, ended_by) and length(m.topic) <= 128
        order by m.until limit budget for update skip locked
    loop
        returned := returned + 1;
        if bide.end_lease(each.id, each.topic, each.due, each.attempt, each.most, each.error, each.began, each.token, now) then
            topics := topics || each.topic;
        end if;
    end loop;
    perform bide.count_dead(topics, dead_max);
    buried := cardinality(topics);
    ids := array(
        select m.id from bide.message m where m.until is null and m.expires > first and m.expires <= now
        order by m.expires limit budget - returned for update skip locked
    );
    delete from bide.message m where m.id = any (ids);
    get diagnostics expired = row_count;
    for each in
        select d.topic, array_agg(d.id) as ids from (
            select o.id, o.topic from bide.dead o where o.died > first - dead_for and o.died <= now - dead_for
            order by o.died limit budget - returned - expired for update skip locked
        ) as d group by d.topic
    loop
        dropped := dropped + bide.drop_dead(each.topic, each.ids);
    end loop;
    more := returned + expired + dropped >= budget;
    if not more and (
        exists (select from bide.result r where r.until > first and r.until <= now)
        or exists (select from bide.waiting w where w.until > first and w.until <= now)
    ) then
        more := bide.tidy_results(budget - returned - expired - dropped, given);
    end if;
    if not more then
        delete from bide.answer a where a.name = any (array(
            select o.name from bide.answer o where o.born > first - 600000 and o.born <= now - 600000 order by o.born limit 1000 for update skip locked
        ));
        get diagnostics forgotten = row_count;
        more := forgotten = 1000;
        delete from bide.topic t where t.name in (
            select o.name from bide.topic o where not o.paused limit 100 for update skip locked
        );
        insert into bide.tally (topic, dead, dropped, summed)
        select s.topic, s.dead, s.dropped, true
        from bide.sum_up(array(select o.topic from bide.tally o where not o.summed limit 1000)) as s
        where s.dead <> 0 or s.dropped <> 0;
    end if;
    at_ := now;
    took := extract(epoch from clock_timestamp() - statement_timestamp()) * 1000000;
    return next;
end $$;

create or replace function bide.upkeep(
    budget int, ended_by bigint, dead_for bigint, dead_max bigint, first bigint, turn bigint, again bigint, given bigint
) returns table (
    returned bigint, buried bigint, expired bigint, dropped bigint, more boolean,
    gates text[], waiters text[], next_in bigint, at_ bigint, took int
) language plpgsql
set search_path = pg_catalog, pg_temp set lock_timeout = '1s'
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
-- That of messages and results, then that of gates: who is called, and in how many ms to come back.
declare
    spare bigint;
    called record;
    next_at bigint := least(
        (select g.next from bide.gate g order by g.next limit 1), (select r.next from bide.gate_rate r order by r.next limit 1)
    );
begin
    select t.* into returned, buried, expired, dropped, more, at_, took
    from bide.tend(budget, ended_by, dead_for, dead_max, first, given) as t;
    spare := budget - returned - expired - dropped;
    if next_at <= at_ and spare > 0 then
        select array_agg(r.gate) filter (where r.gate is not null) as gates,
            array_agg(r.waiter) filter (where r.gate is not null) as waiters, max(r.next_at) as next_at, bool_or(r.more) as more
        into called from bide.recall_gates(spare, turn, again, given) as r;
        gates := called.gates;
        waiters := called.waiters;
        next_at := called.next_at;
        more := more or coalesce(called.more, false);
    end if;
    next_in := case when next_at is not null then greatest(0, next_at - at_) end;
    return next;
end $$;
