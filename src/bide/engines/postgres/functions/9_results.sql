-- Kept results, and what dependent messages wait for. What is written is written in the order of the ids: so no two verbs wait
-- for each other in a circle.

create or replace function bide.expect_results(ids text[], ends bigint[], joined boolean, given bigint) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
    now bigint;
begin
    if not joined then
        perform bide.limit_waiting('');
    end if;
    now := bide.engine_us(given, true) / 1000;
    insert into bide.result as r (message, until, done)
    select e.id, max(e.until), false from unnest(ids, ends) as e(id, until) group by e.id order by e.id collate "C"
    on conflict (message) do update set until = excluded.until, done = false, value = null, token = '' where r.until <= now;
end $$;

create or replace function bide.fulfil_results(ids text[], lasts bigint[], vals bytea[], tokens text[], given bigint)
returns table (place bigint, dependent text) language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
-- Who follows is looked for when the results are locked: `follow` waits for that, or this for its commit. A worker that stood
-- still may return when another one has done the same: the later delivery counts.
declare
    now bigint;
begin
    perform bide.limit_waiting('');
    now := bide.engine_us(given, true) / 1000;
    insert into bide.result as r (message, until, done, value, token)
    select distinct on (e.id collate "C") e.id, now + e.lasts, true, e.value, e.token
    from unnest(ids, lasts, vals, tokens) with ordinality as e(id, lasts, value, token, place)
    order by e.id collate "C", e.token collate "C" desc, e.place desc
    on conflict (message) do update
        set until = excluded.until, done = true, value = excluded.value, token = excluded.token
        where r.token <= excluded.token or r.until <= now;
    return query
        select e.place, w.message from unnest(ids) with ordinality as e(id, place)
        join bide.waiting w on w.other = e.id collate "C";
end $$;

create or replace function bide.read_results(ids text[], given bigint)
returns table (place bigint, done boolean, value bytea) language sql stable
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
    select e.place, r.done, r.value from unnest(ids) with ordinality as e(id, place)
    join bide.result r on r.message = e.id collate "C"
    where r.until > bide.engine_us(given, false) / 1000
$$;

create or replace function bide.tidy_results(most bigint, given bigint) returns boolean language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
    now bigint := bide.engine_us(given, true) / 1000;
    results bigint;
    waiting bigint;
begin
    delete from bide.result r where r.message = any (array(
        select o.message from bide.result o where o.until <= now order by o.until limit most for update skip locked
    ));
    get diagnostics results = row_count;
    delete from bide.waiting w where w.message = any (array(
        select o.message from bide.waiting o where o.until <= now order by o.until limit most for update skip locked
    )) and w.until <= now;
    get diagnostics waiting = row_count;
    return greatest(results, waiting) >= most;
end $$;

create or replace function bide.depend(ids text[], others text[], ends bigint[], joined boolean) returns void language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
begin
    if not joined then
        perform bide.limit_waiting('');
    end if;
    insert into bide.waiting (message, other, until)
    select e.id, e.other, max(e.until) from unnest(ids, others, ends) as e(id, other, until)
    group by e.id, e.other order by e.id collate "C", e.other collate "C"
    on conflict do nothing;
end $$;

create or replace function bide.follow(ids text[], joined boolean, given bigint) returns table (place bigint, done boolean)
language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
-- The results are locked until the caller commits: what is fulfilled meanwhile waits for that, and finds who follows.
declare
    now bigint;
begin
    if not joined then
        perform bide.limit_waiting('');
    end if;
    now := bide.engine_us(given, true) / 1000;
    perform 1 from bide.result r where r.message = any (ids) order by r.message for share;
    return query
        select e.place, r.done from unnest(ids) with ordinality as e(id, place)
        join bide.result r on r.message = e.id collate "C" and r.until > now;
end $$;

create or replace function bide.arrive(ids text[], others text[], given bigint) returns table (place bigint) language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
-- Those that have nothing left to wait for. All rows of a dependent message are locked, so that of two that arrive at once the
-- second sees the first. Without another one, a dependent message was called, and its rows are deleted.
declare
    now bigint;
begin
    perform bide.limit_waiting('');
    perform 1 from bide.waiting w where w.message = any (ids) order by w.message, w.other for update;
    now := bide.engine_us(given, true) / 1000;
    update bide.waiting w set arrived = true
    from unnest(ids, others) as e(id, other)
    where w.message = e.id collate "C" and w.other = e.other collate "C" and not w.arrived;
    if array_position(others, null) is not null then
        delete from bide.waiting w
        where w.message = any (array(select e.id from unnest(ids, others) as e(id, other) where e.other is null));
    end if;
    return query
        select e.place from unnest(ids) with ordinality as e(id, place)
        where (select bool_and(w.arrived) from bide.waiting w where w.message = e.id collate "C" and w.until > now);
end $$;
