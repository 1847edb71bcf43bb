-- Handing messages out.

create or replace function bide.chosen(of text, first bigint, places int, now bigint, wall bigint) returns bigint[] language plpgsql as $$
-- Due messages of a topic, locked: by priority, but every eighth is the oldest. Those that another claim has locked are left to
-- it, expired ones end, and instants wait for the server's clock.
declare
    high bigint[];
    normal bigint[];
    low bigint[];
    dues bigint[];  -- of all of them, in this order
    expired bigint[];
    ids bigint[] := '{}';
    turn bigint;
    at int[] := '{1,1,1}';
    best int;
    several boolean;
begin
    -- As most have it: nothing is due but messages of normal priority, and none has expired.
    select array_agg(n.id), coalesce(bool_or(n.expires <= now), false)
        or exists (select 1 from bide.message m where m.topic = of and m.level = 0 and m.until is null and m.due between first and now)
        or exists (select 1 from bide.message m where m.topic = of and m.level = 2 and m.until is null and m.due between first and now)
    into normal, several
    from (
        select m.id, m.expires from bide.message m
        where m.topic = of and m.level = 1 and m.until is null and m.due between first and now
            and (m.by_clock is null or m.due <= wall)
        order by m.due, m.id limit places for update skip locked
    ) as n;
    if not several then
        return normal;
    end if;
    loop
        select array_agg(p.id) filter (where p.level = 0), array_agg(p.id) filter (where p.level = 1),
            array_agg(p.id) filter (where p.level = 2), array_agg(p.due), array_agg(p.id) filter (where p.expires <= now)
        into high, normal, low, dues, expired
        from (  -- in the order in which they stand here
            select h.* from (
                select m.id, m.due, m.level, m.expires from bide.message m
                where m.topic = of and m.level = 0 and m.until is null and m.due between first and now
                    and (m.by_clock is null or m.due <= wall)
                order by m.due, m.id limit places for update skip locked
            ) as h union all select n.* from (
                select m.id, m.due, m.level, m.expires from bide.message m
                where m.topic = of and m.level = 1 and m.until is null and m.due between first and now
                    and (m.by_clock is null or m.due <= wall)
                order by m.due, m.id limit places for update skip locked
            ) as n union all select l.* from (
                select m.id, m.due, m.level, m.expires from bide.message m
                where m.topic = of and m.level = 2 and m.until is null and m.due between first and now
                    and (m.by_clock is null or m.due <= wall)
                order by m.due, m.id limit places for update skip locked
            ) as l
        ) as p;
        exit when expired is null;
        delete from bide.message m where m.id = any (expired);
    end loop;
    if high is null and low is null then
        return normal;
    end if;
    while cardinality(ids) < places loop
        turn := nextval('bide.turn');
        best := case
            when turn % 8 = 0 then (
                select heads.level from (values
                    (1, dues[at[1]], high[at[1]]),
                    (2, dues[coalesce(cardinality(high), 0) + at[2]], normal[at[2]]),
                    (3, dues[coalesce(cardinality(high), 0) + coalesce(cardinality(normal), 0) + at[3]], low[at[3]])
                ) as heads(level, due, id)
                where heads.id is not null order by heads.due, heads.id limit 1
            )
            when high[at[1]] is not null then 1
            when normal[at[2]] is not null then 2
            when low[at[3]] is not null then 3
        end;
        exit when best is null;
        ids := ids || case best when 1 then high[at[1]] when 2 then normal[at[2]] else low[at[3]] end;
        at[best] := at[best] + 1;
    end loop;
    return ids;
end $$;

create or replace function bide.hand_out(
    topics text[], firsts bigint[], places int, lease bigint, request text, quiet text[], given bigint
) returns table (
    id bigint, topic text, body bytea, headers text, key text, due bigint, since bigint, attempt int, most int, token bigint,
    place bigint, began bigint
) language plpgsql
set search_path = pg_catalog, pg_temp set lock_timeout = '1s'
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan as $$
-- One row for each delivery; then one with the next due time, the engine's now, how many µs all this took, and what the
-- server's clock shows.
-- firsts: for each topic a due time before which nothing is looked for.
#variable_conflict use_column
declare
    us bigint := bide.engine_us(given, true);
    now bigint := us / 1000;
    wall bigint := bide.wall_ms(given, us);
    awake text[] := topics;
    starts bigint[] := firsts;
    again boolean;  -- this was asked before, and is answered as it was then
    paused text[];
    setting text;
    share int;
    room int := places;
    ids bigint[];
    next_due bigint;
    soonest bigint;
    pass int;
    i int;
begin
    setting := set_config('synchronous_commit', 'off', true);  -- a claim that is lost is made again
    lock table bide.topic in row share mode;  -- see pause
    select exists (select 1 from bide.message m where m.request = hand_out.request),  -- with `until`, the planner may walk all leases
        array(select p.name from bide.topic p where p.name = any (topics) and p.paused)
    into again, paused;
    if again then
        room := 0;
        return query
            select m.id, m.topic, m.body, m.headers, m.key, m.due, coalesce(m.since, m.due), m.attempt, m.most, m.token,
                row_number() over (order by m.due, m.id), m.began
            from bide.message m where m.request = hand_out.request;
    end if;
    if paused <> '{}' then
        select array_agg(t.name order by t.place), array_agg(t.first order by t.place) into awake, starts
        from unnest(topics, firsts) with ordinality as t(name, first, place) where t.name <> all (paused);
    end if;
    share := greatest(1, places / greatest(1, cardinality(awake)));
    for pass in 1..2 loop
        for i in 1..coalesce(cardinality(awake), 0) loop
            exit when room <= 0;
            ids := bide.chosen(awake[i], starts[i], case pass when 1 then least(share, room) else room end, now, wall);
            if ids is not null then
                -- What tend returned while this call was on its way was held until then.
                now := greatest(now, bide.engine_us(given, false) / 1000);
                room := room - cardinality(ids);
                return query
                    update bide.message m set
                        until = now + lease, attempt = least(m.attempt, 2147483646) + 1, request = hand_out.request,
                        token = (greatest(now, least(coalesce(m.token, 0) >> 20, 4398046511104) + 1) << 20)
                            + floor(random() * 1048576)::bigint
                    from unnest(ids) with ordinality as c(id, place)
                    where m.id = any (array[c.id])  -- see settle
                    returning m.id, m.topic, m.body, m.headers, m.key, m.due, coalesce(m.since, m.due), m.attempt, m.most,
                        m.token, pass * 1000000 + c.place, m.began;
            end if;
        end loop;
        exit when share >= places;
    end loop;
    for i in 1..coalesce(cardinality(awake), 0) loop
        soonest := bide.first_after(awake[i], case when room <= 0 then least(starts[i] - 1, now) else now end, 9223372036854775807);
        if soonest <= now then
            if awake[i] <> all (quiet) then
                perform bide.tell(awake[i], soonest, now);
            end if;
        else
            soonest := least(soonest, bide.first_held(awake[i], now, wall));
        end if;
        next_due := least(next_due, soonest);
    end loop;
    id := null;
    topic := null;
    body := null;
    headers := null;
    key := null;
    due := next_due;
    since := now;
    attempt := extract(epoch from clock_timestamp() - statement_timestamp()) * 1000000;
    most := 0;
    token := 0;
    place := 0;
    began := wall - us / 1000 + now;
    return next;
end $$;

create or replace function bide.claim(
    topics text[], firsts bigint[], places int, lease bigint, request text, quiet text[], given bigint
) returns table (
    id bigint, topic text, body bytea, headers text, key text, due bigint, since bigint, attempt int, most int, token bigint,
    place bigint
) language sql set search_path = pg_catalog, pg_temp as $$
-- As the release before calls it.
    select h.id, h.topic, h.body, h.headers, h.key, h.due, h.since, h.attempt, h.most, h.token, h.place
    from bide.hand_out(topics, firsts, places, lease, request, quiet, given) as h
$$;
