-- How often something may begin: the arithmetic of core/rate.py.

create or replace function bide.free_from(r bide.gate_rate, at bigint, groups bigint) returns bigint language sql immutable as $$
-- When a group may begin, if so many may be in one window.
    select case
        when cardinality(r.ended) < groups then at
        else greatest(at, r.ended[cardinality(r.ended) - groups + 1] + r.span)
    end
$$;

create or replace function bide.next_free(r bide.gate_rate, now bigint) returns bigint language plpgsql immutable as $$
-- The next instant that is free.
declare
    at bigint := greatest(now, r.last);
    size bigint := (r.most + 99) / 100;
    free bigint;
begin
    if r.filled > 0 then
        return at;
    end if;
    if at < r.until then
        if r.most - r.carried >= size then
            free := bide.free_from(r, at, (r.most - r.carried) / size);
            if free < r.until then
                return free;
            end if;
        end if;
        at := r.until;
    end if;
    return bide.free_from(r, at, r.most / size);
end $$;

create or replace function bide.changed_rate(r bide.gate_rate, count bigint, span bigint, now bigint) returns bide.gate_rate
language plpgsql immutable as $$
-- At another rate: what lies in its window counts as begun with the last of it, and for no longer than that window.
declare
    used bigint := 0;
begin
    if r.last > now - changed_rate.span then
        used := (select count(*) from unnest(r.ended) as e(at) where e.at > now - changed_rate.span) * ((r.most + 99) / 100)
            + r.filled;
    end if;
    r.carried := used + case when now < r.until then r.carried else 0 end;
    r.until := case when r.carried > 0 then greatest(least(r.until, now + changed_rate.span), r.last + changed_rate.span) else 0 end;
    r.ended := '{}';
    r.filled := 0;
    r.most := count;
    r.span := changed_rate.span;
    return r;
end $$;

create or replace function bide.taken(r bide.gate_rate, at bigint, many bigint) returns bide.gate_rate
language plpgsql immutable as $$
-- So many more have begun, no more than the group has room for.
declare
    size bigint := (r.most + 99) / 100;
begin
    r.last := at;
    r.filled := r.filled + many;
    if r.filled = size then
        r.ended := (r.ended || at)[greatest(1, cardinality(r.ended) + 2 - r.most / size):];
        r.filled := 0;
    end if;
    return r;
end $$;

create or replace function bide.planned(
    r bide.gate_rate, of_holder text, now bigint, inout at bigint
) language plpgsql as $$
-- The instant of somebody who may not begin now, and was told to come at `at`, if that is not null. `r` is what has begun. A
-- row of its own has what would have, if all had come at the instants that they were told.
declare
    plan bide.gate_rate;
    free bigint := bide.next_free(r, now);
    of_plan text := r.name || chr(1);
begin
    if at is null or at <= now then
        select * into plan from bide.gate_rate g where g.name = of_plan;
        if at is not null and plan.last > now and now - at <= 5000 then
            at := free + now - at;
        else
            if plan.last > now then
                if plan.most <> r.most or plan.span <> r.span then
                    plan := bide.changed_rate(plan, r.most, r.span, now);
                end if;
            else
                plan := r;
            end if;
            at := bide.next_free(plan, now);
            plan := bide.taken(plan, at, 1);
            insert into bide.gate_rate as g (name, next, most, span, ended, last, filled, carried, until)
            values (of_plan, greatest(plan.last + plan.span, plan.until), plan.most, plan.span, plan.ended, plan.last,
                plan.filled, plan.carried, plan.until)
            on conflict (name) do update set
                next = least(g.next, excluded.next), most = excluded.most, span = excluded.span,
                ended = excluded.ended, last = excluded.last, filled = excluded.filled, carried = excluded.carried,
                until = excluded.until;
        end if;
    end if;
    insert into bide.gate_instant (rate, holder, at) values (of_plan, of_holder, at);
end $$;

create or replace function bide.kept_instant(of_rate text, of_holder text, now bigint, out kept bigint) language plpgsql as $$
-- The instant that somebody was told to come at. It is forgotten: whoever may not begin gets another one.
begin
    delete from bide.gate_instant i where i.rate = of_rate || chr(1) and i.at < now - 600000;
    delete from bide.gate_instant i where i.rate = of_rate || chr(1) and i.holder = of_holder returning i.at into kept;
end $$;

create or replace function bide.spend(
    rates text[], counts bigint[], windows bigint[], wants bigint[], holders text[], given bigint
) returns table (place bigint, at_ bigint, many bigint, now_ bigint) language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
-- For each rate the instants that are granted, with how many there are of each; and then, without a number, the next one.
#variable_conflict use_column
declare
    now bigint;
    each record;
    it bide.gate_rate;
    size bigint;
    kept bigint;
begin
    perform bide.limit_waiting('');
    insert into bide.gate_rate (name, next, most, span)
    select distinct on (e.name collate "C") e.name, 0, e.count, e.span from unnest(rates, counts, windows) with ordinality
        as e(name, count, span, place)
    where not exists (select 1 from bide.gate_rate r where r.name = any (array[e.name])) order by e.name collate "C", e.place
    on conflict do nothing;
    perform 1 from bide.gate_rate r where r.name = any (rates) order by r.name for update;
    get diagnostics size = row_count;
    if size < (select count(distinct e.name) from unnest(rates) as e(name)) then
        raise exception 'a rate was forgotten meanwhile' using errcode = '40001';
    end if;
    now := bide.engine_us(given, true) / 1000;
    now_ := now;
    for each in
        select e.* from unnest(rates, counts, windows, wants, holders) with ordinality
            as e(name, count, span, want, holder, place)
    loop
        place := each.place;
        select r.* into it from bide.gate_rate r where r.name = each.name;
        if it.most <> each.count or it.span <> each.span then
            it := bide.changed_rate(it, each.count, each.span, now);
        end if;
        if each.holder is not null then
            each.want := 1;
            kept := bide.kept_instant(each.name, each.holder, now);
            if bide.next_free(it, now) > now or (kept is null and exists (
                select 1 from bide.gate_rate r where r.name = each.name || chr(1) and r.last > now
            )) then
                at_ := bide.planned(it, each.holder, now, kept);
                many := 1;
                return next;
                each.want := 0;
            end if;
        end if;
        size := (it.most + 99) / 100;
        loop
            at_ := bide.next_free(it, now);
            exit when each.want <= 0 or at_ > now;
            many := least(each.want, size - it.filled);
            return next;
            it := bide.taken(it, at_, many);
            each.want := each.want - many;
        end loop;
        many := null;
        return next;
        update bide.gate_rate r set
            next = case when r.next = 0 then greatest(it.last + it.span, it.until) else r.next end, most = it.most, span = it.span,
            ended = it.ended, last = it.last, filled = it.filled, carried = it.carried, until = it.until
        where r.name = each.name;
    end loop;
end $$;
