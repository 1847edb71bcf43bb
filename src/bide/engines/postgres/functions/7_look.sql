-- Looking without touching. What is looked at is of one instant: each function is `stable`, so all its statements see what
-- the call saw when it began.

create or replace view bide.stored as
    select m.id, m.topic, m.due, m.attempt, m.most, m.key, m.level, m.body, m.headers, m.error, m.until, m.expires,
        null::bigint as died
    from bide.message m
    union all
    select d.id, d.topic, d.due, d.attempt, d.most, d.key, d.level, d.body, d.headers, d.error, null, d.expires, d.died
    from bide.dead d;

create or replace function bide.look_up(ids bigint[], topics text[], keys text[], given bigint)
returns table (place bigint, now bigint, it bide.stored, traces bytea[]) language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
    us bigint := bide.engine_us(given, given is not null);
    at_ bigint := us / 1000;
    wall bigint := bide.wall_ms(given, us);
begin
    return query
        select g.place, case when (select m.by_clock from bide.message m where m.id = s.id and m.until is null) then wall else at_ end,
            row(s.*)::bide.stored, case
            when s.died is null then (select m.traces from bide.message m where m.id = s.id)
            else (select d.traces from bide.dead d where d.id = s.id)
        end
        from unnest(ids, topics, keys) with ordinality as g(id, topic, key, place), lateral (
            select o.* from bide.stored o where o.id = g.id
            union all
            select o.* from bide.stored o where o.topic = g.topic and o.key = g.key and o.died is null
        ) as s
        where s.died is not null or s.until is not null or s.expires is null or s.expires > at_;
end $$;

create or replace function bide.get(ids bigint[], topics text[], keys text[], given bigint)
returns table (place bigint, now bigint, it bide.stored) language sql stable set search_path = pg_catalog, pg_temp as $$
-- As the release before calls it.
    select l.place, l.now, l.it from bide.look_up(ids, topics, keys, given) as l
$$;

create or replace function bide.scan(of text, state text, stage int, instant bigint, after bigint, places int, given bigint)
returns table (now bigint, stage_of int, it bide.stored) language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
-- What comes after a place of a listing: pending messages by due time, then leased ones, then dead ones by time of death.
declare
    left_ int := places;
    many int;
    us bigint := bide.engine_us(given, given is not null);
    wall bigint := bide.wall_ms(given, us);
begin
    now := us / 1000;
    if stage = 0 and (state is null or state in ('scheduled', 'ready')) then
        return query
            select
                case when s.by_clock then wall else scan.now end, 0,
                row(s.id, s.topic, s.due, s.attempt, s.most, s.key, s.level, s.body, s.headers, s.error, s.until, s.expires, null)::bide.stored
            from (
                select m.* from generate_series(0, 2) as l(level), lateral (
                    select m.id, m.topic, m.due, m.attempt, m.most, m.key, m.level, m.body, m.headers, m.error, m.until,
                        m.expires, m.by_clock
                    from bide.message m
                    where m.topic = of and m.level = l.level and m.until is null and (m.due, m.id) > (instant, after)
                        and m.due > case state when 'scheduled' then wall else -1 end
                        and m.due <= case state when 'ready' then scan.now else 9223372036854775807 end
                        and (state is null or (m.due <= case when m.by_clock then wall else scan.now end) = (state = 'ready'))
                    order by m.due, m.id limit places
                ) as m
                order by m.due, m.id limit places
            ) as s;
        get diagnostics many = row_count;
        left_ := left_ - many;
    end if;
    if stage < 1 then
        instant := -1;
        after := 0;
    end if;
    if stage <= 1 and left_ > 0 and (state is null or state = 'leased') then
        return query
            select scan.now, 1, row(s.*)::bide.stored from (
                select m.id, m.topic, m.due, m.attempt, m.most, m.key, m.level, m.body, m.headers, m.error, m.until, m.expires,
                    null::bigint
                from bide.message m
                where m.topic = of and m.until > -1 and (m.due, m.id) > (instant, after)
                order by m.due, m.id limit left_
            ) as s;
        get diagnostics many = row_count;
        left_ := left_ - many;
    end if;
    if stage < 2 then
        instant := -1;
        after := 0;
    end if;
    if left_ > 0 and (state is null or state = 'dead') then
        return query
            select scan.now, 2, row(s.*)::bide.stored from (
                select d.id, d.topic, d.due, d.attempt, d.most, d.key, d.level, d.body, d.headers, d.error, null::bigint,
                    d.expires, d.died
                from bide.dead d
                where d.topic = of and (d.died, d.id) > (instant, after) order by d.died, d.id limit left_
            ) as s;
    end if;
end $$;

create or replace function bide.get_all(ids bigint[], topics text[], keys text[], given bigint)
returns table (place bigint, now bigint, it bide.stored, traces bytea[], since bigint, token bigint, request text)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
-- A row of `stored` has no room for since when a message waits and what it is leased by, as the release before reads those.
begin
    return query
        select l.place, l.now, l.it, l.traces, m.since,
            case when m.until is not null then m.token end, case when m.until is not null then m.request end
        from bide.look_up(ids, topics, keys, given) as l left join bide.message m on m.id = any (array[(l.it).id]);  -- see settle
end $$;

create or replace function bide.scan_all(of text, state text, stage int, instant bigint, after bigint, places int, given bigint)
returns table (now bigint, stage_of int, it bide.stored, since bigint, token bigint, request text) language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
begin
    return query
        select s.now, s.stage_of, s.it, m.since,
            case when m.until is not null then m.token end, case when m.until is not null then m.request end
        from bide.scan(of, state, stage, instant, after, places, given) with ordinality as s(now, stage_of, it, place)
        left join bide.message m on m.id = any (array[(s.it).id])  -- see settle
        order by s.place;
end $$;

create or replace function bide.topics() returns setof text language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
-- All that hold something or are paused: a jump from each to the next along the index, not a walk.
declare
    name text := '';
begin
    loop
        select m.topic into name from bide.message m where m.until is null and m.topic > name order by m.topic limit 1;
        exit when name is null;
        return next name;
    end loop;
    return query select distinct m.topic from bide.message m where m.until > -1;
    return query select t.name from bide.topic t where t.paused;
    return query select distinct t.topic from bide.tally t;
end $$;

create or replace function bide.stats_of(
    names text[], exact int, roughly boolean, window_start bigint, window_end bigint, parts bigint, given bigint
) returns table (
    name text, scheduled bigint, ready bigint, leased bigint, dead bigint, dropped bigint, paused boolean, first bigint,
    next_due bigint, now bigint, timeline bigint[], about boolean
) language plpgsql stable
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_mergejoin = off as $$
-- One row for each topic. More than `exact` scheduled or ready messages are not counted, but estimated, from a thousand pages of
-- the table, which are always the same ones: statistics of the planner would be of another time. So are the parts of a window
-- that has more, if they may be told `roughly`. The caller names as many topics as take a moment.
#variable_conflict use_column
declare
    us bigint := bide.engine_us(given, given is not null);
    at_ bigint := us / 1000;
    wall bigint := bide.wall_ms(given, us);
    pages bigint := pg_relation_size('bide.message') / current_setting('block_size')::bigint;
    percent double precision := least(100, 100000.0 / greatest(1, pages));
begin
    return query with sampled as materialized (  -- not read unless a topic is large
        select m.topic, round(count(*) filter (where m.due > at_) * 100 / percent)::bigint as far,
            round(count(*) filter (where m.due <= at_) * 100 / percent)::bigint as due
        from bide.message m tablesample system (percent) repeatable (0)
        where m.until is null and m.topic = any (names) group by m.topic
    ), parted as materialized (  -- nor this
        select m.topic, (m.due - window_start) * parts / (window_end - window_start) as part,
            round(count(*) * 100 / percent)::bigint as many
        from bide.message m tablesample system (percent) repeatable (0)
        where m.until is null and m.topic = any (names) and m.due >= window_start and m.due < window_end group by 1, 2
    )
    select
        each.name,
        early.many + case when far.many > exact
            then greatest(far.many, (select s.far from sampled s where s.topic = each.name)) else far.many end,
        case when due.many > exact
            then greatest(due.many, (select s.due from sampled s where s.topic = each.name)) else due.many end - early.many,
        coalesce(held.many, 0), coalesce(tally.dead, 0), coalesce(tally.dropped, 0), coalesce(t.paused, false),
        case when due.many > early.many then (
            select min(f.due) from generate_series(0, 2) as l(level), lateral (
                select m.due from bide.message m where m.topic = each.name and m.level = l.level and m.until is null
                    and (m.by_clock is null or m.due <= wall)
                order by m.due limit 1
            ) as f
        ) end,
        least(early.first, case when far.many > 0 then (
            select min(f.due) from generate_series(0, 2) as l(level), lateral (
                select m.due from bide.message m where m.topic = each.name and m.level = l.level and m.until is null and m.due > at_
                order by m.due limit 1
            ) as f
        ) end),
        at_,
        case when parts is null then null when inside.many > exact then array(
            select coalesce(c.many, 0) from generate_series(0, parts - 1) as p(part)
            left join parted c on c.topic = each.name and c.part = p.part order by p.part
        ) else array(
            select coalesce(c.many, 0) from generate_series(0, parts - 1) as p(part) left join (
                select (m.due - window_start) * parts / (window_end - window_start) as part, count(*) as many
                from bide.message m
                where m.topic = each.name and m.level in (0, 1, 2) and m.until is null and m.due >= window_start
                    and m.due < window_end
                group by 1
            ) as c on c.part = p.part order by p.part
        ) end,
        far.many > exact or due.many > exact or inside.many > exact
    from unnest(names) as each(name)
    cross join lateral (
        select count(*) as many from (
            select 1 from bide.message m
            where roughly and m.topic = each.name and m.level in (0, 1, 2) and m.until is null and m.due >= window_start
                and m.due < window_end
            limit exact + 1
        ) as c
    ) as inside
    cross join lateral (
        select count(*) as many from (
            select 1 from bide.message m
            where m.topic = each.name and m.level in (0, 1, 2) and m.until is null and m.due > at_ limit exact + 1
        ) as c
    ) as far
    cross join lateral (
        select count(*) as many from (
            select 1 from bide.message m
            where m.topic = each.name and m.level in (0, 1, 2) and m.until is null and m.due <= at_ limit exact + 1
        ) as c
    ) as due
    cross join lateral (  -- instants that wait for the clock
        select count(*) as many, min(c.due) as first from (
            select m.due from bide.message m
            where wall < at_ and m.topic = each.name and m.level in (0, 1, 2) and m.until is null and m.due > wall and m.due <= at_
                and m.by_clock
            limit exact
        ) as c
    ) as early
    left join (
        select m.topic, count(*) as many from bide.message m where m.until > -1 and m.topic = any (names) group by m.topic
    ) as held on held.topic = each.name
    left join (
        select y.topic, sum(y.dead)::bigint as dead, sum(y.dropped)::bigint as dropped from bide.tally y
        where y.topic = any (names) group by y.topic
    ) as tally on tally.topic = each.name
    left join bide.topic t on t.name = each.name
    order by each.name;
end $$;

create or replace function bide.stats(
    of text, but text[], exact int, window_start bigint, window_end bigint, parts bigint, given bigint
) returns table (
    name text, scheduled bigint, ready bigint, leased bigint, dead bigint, dropped bigint, paused boolean, first bigint,
    next_due bigint, now bigint, timeline bigint[], about boolean
) language plpgsql stable
set search_path = pg_catalog, pg_temp as $$
-- As the release before asks: all topics in one statement.
begin
    return query select * from bide.stats_of(
        case when of is null then array(select distinct t from bide.topics() as t where t <> all (but)) else array[of] end,
        exact, false, window_start, window_end, parts, given
    );
end $$;
