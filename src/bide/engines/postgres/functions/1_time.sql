-- Engine time, due times, and what is told to those who wait.

create or replace function bide.engine_us(given bigint, keep boolean) returns bigint language plpgsql as $$
-- Engine time in microseconds. Below the mark, as after a step back of the server's clock, it runs at half speed.
-- A sequence that was never set is null, and stands for 0. Asked for like this, it takes no statement.
declare
    clock bigint := extract(epoch from clock_timestamp()) * 1000000;
    marked bigint := coalesce(pg_sequence_last_value('bide.mark'), 0);
    was bigint;
    shown bigint;
begin
    if given is not null then
        shown := greatest(given * 1000, marked, clock);
    elsif clock >= marked then
        shown := clock;
    else
        was := coalesce(pg_sequence_last_value('bide.raw'), 0);
        shown := marked + greatest(0, clock - was) / 2;
        if keep and clock < was then
            perform setval('bide.raw', clock);  -- it was set back, and half speed begins here
        end if;
    end if;
    if keep and (shown > marked + 1000000 or (given is not null and shown > marked)) then
        perform setval('bide.raw', clock);  -- first: in between, time stands still and does not jump
        perform setval('bide.mark', shown);
    end if;
    return shown;
end $$;

create or replace function bide.due_time(delay bigint, at bigint, us bigint) returns bigint language sql immutable as $$
-- Never early: rounded up. What is for now is for now.
    select case
        when at is not null then greatest(at, us / 1000)
        when delay > 0 then (us + 999) / 1000 + delay
        else us / 1000
    end
$$;

create or replace function bide.wall_ms(given bigint, us bigint) returns bigint language sql volatile as $$
-- The server's clock as it stands, in milliseconds: behind engine time if it was set back, and never ahead.
    select least(us, coalesce(given * 1000, (extract(epoch from clock_timestamp()) * 1000000)::bigint)) / 1000
$$;

create or replace function bide.planned(delay bigint, at bigint, us bigint, wall bigint) returns bigint language sql immutable as $$
-- The same, where an instant that the clock has not reached stays one, also when engine time has passed it.
    select case when at > wall then at else bide.due_time(delay, case when at is not null then us / 1000 end, us) end
$$;

create or replace function bide.reached_at(due bigint, now bigint, wall bigint) returns bigint language sql immutable as $$
-- What engine time is when the clock reaches an instant: while the clock is behind, at half its speed. Rounded up, so never too early.
    select greatest(due, now + (due - wall + 1) / 2)
$$;

create or replace function bide.since_of(due bigint, instant boolean, now bigint, wall bigint) returns bigint language sql immutable as $$
-- When engine time comes to a due time, if that is not the due time itself.
    select case when instant then nullif(bide.reached_at(due, now, wall), due) end
$$;

create or replace function bide.first_held(of text, now bigint, wall bigint) returns bigint language plpgsql as $$
-- When the first of the instants is to be handed out that wait for the clock.
begin
    if wall >= now then
        return null;
    end if;
    return bide.reached_at((
        select min(m.due) from bide.message m
        where m.topic = of and m.level in (0, 1, 2) and m.until is null and m.due > wall and m.due <= now and m.by_clock
            and (m.expires is null or m.expires > now)
    ), now, wall);
end $$;

create or replace function bide.first_after(of text, instant bigint, before bigint) returns bigint language plpgsql stable as $$
-- The first due time of what is pending of a topic, after an instant and before another.
begin
    return least((
        select m.due from bide.message m
        where m.topic = of and m.level = 0 and m.until is null and m.due > instant and m.due < before order by m.due limit 1
    ), (
        select m.due from bide.message m
        where m.topic = of and m.level = 1 and m.until is null and m.due > instant and m.due < before order by m.due limit 1
    ), (
        select m.due from bide.message m
        where m.topic = of and m.level = 2 and m.until is null and m.due > instant and m.due < before order by m.due limit 1
    ));
end $$;

create or replace function bide.tell(of text, due bigint, now bigint) returns void language plpgsql as $$
-- Tell those who wait, when this transaction commits, that a message of a topic is due then, unless they will come for an earlier
-- one. That must not fall due before the commit, as its claim would not see this one. `now` is when this call began, and `looked`
-- when this looks: at the end of the call, after all that may wait. The commit has a tenth of a second, or half of what is left.
declare
    looked bigint := now + extract(epoch from clock_timestamp() - statement_timestamp()) * 1000;
    before bigint;
begin
    if due > looked then  -- else it may be any number: a row that was written by hand
        before := looked + least(100, (due - looked) / 2);
        -- Most have this level, and messages of the same delay come one after the other: a look at few entries of the index, then at
        -- all. Each look sets up only one scan.
        if exists (
            select 1 from bide.message m
            where m.topic = of and m.level = 1 and m.until is null and m.due > greatest(before, tell.due - 20) and m.due < tell.due
        ) then
            return;
        elsif exists (select 1 from bide.message m where m.topic = of and m.level = 1 and m.until is null and m.due > before and m.due < tell.due)
            or exists (select 1 from bide.message m where m.topic = of and m.level = 0 and m.until is null and m.due > before and m.due < tell.due)
            or exists (select 1 from bide.message m where m.topic = of and m.level = 2 and m.until is null and m.due > before and m.due < tell.due)
        then
            return;
        end if;
    end if;
    perform pg_notify('bide', of || ' ' || due);
end $$;

create or replace function bide.tell_late(topics text[], due bigint) returns void language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan as $$
-- What calls have left untold. Sends on this connection use the plans that are made here.
declare
    now bigint := bide.engine_us(null, false) / 1000;
begin
    perform bide.tell(t, due, now) from unnest(topics) as t;
end $$;

create or replace function bide.recall(request text, now bigint) returns text[] language plpgsql as $$
-- What was answered to an operation of the last ten minutes; or null.
declare
    of_then text[];
    then_ bigint;
begin
    select a.answers, a.born into of_then, then_ from bide.answer a where a.name = request;
    if then_ <= now - 600000 then
        delete from bide.answer a where a.name = request and a.born <= now - 600000;
        return null;
    end if;
    return of_then;
end $$;

create or replace function bide.limit_waiting(request text) returns void language plpgsql as $$
-- A call outside of a caller's transaction waits this long for a lock, and then says that it did nothing.
begin
    if request is not null then
        perform set_config('lock_timeout', '1s', true);
    end if;
end $$;
