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
-- At another rate: what counts of the old one counts as begun with the last of it.
declare
    longest bigint := greatest(r.span, changed_rate.span);
    used bigint := 0;
begin
    if r.last > now - longest then
        used := (select count(*) from unnest(r.ended) as e(at) where e.at > now - longest) * ((r.most + 99) / 100) + r.filled;
    end if;
    r.carried := used + case when now < r.until then r.carried else 0 end;
    r.until := case when r.carried > 0 then greatest(r.until, r.last + longest) else 0 end;
    r.ended := '{}';
    r.filled := 0;
    r.most := count;
    r.span := changed_rate.span;
    return r;
end $$;

create or replace function bide.reserve(
    r bide.gate_rate, of_span bigint, of_holder text, now bigint, out kept bigint
) language plpgsql as $$
-- The instant that is kept for somebody, as long as it is good: for a hundredth of the window.
begin
    delete from bide.gate_instant i where i.rate = r.name and i.at < now - of_span / 100;
    select i.at into kept from bide.gate_instant i where i.rate = r.name and i.holder = of_holder;
    if kept <= now then
        delete from bide.gate_instant i where i.rate = r.name and i.holder = of_holder;
    end if;
end $$;

create or replace function bide.spend(
    rates text[], counts bigint[], windows bigint[], wants bigint[], holders text[], given bigint
) returns table (place bigint, at_ bigint, many bigint, now_ bigint) language plpgsql
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
-- For each rate the instants that are granted, with how many there are of each; and then, without a number, the next one.
#variable_conflict use_column
declare
    now bigint;
    each record;
    it bide.gate_rate;
    size bigint;
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
        if each.holder is not null then
            at_ := bide.reserve(it, each.span, each.holder, now);
            each.want := 1;
            if at_ is not null then
                many := 1;
                return next;
                each.want := 0;
            end if;
        end if;
        if it.most <> each.count or it.span <> each.span then
            it := bide.changed_rate(it, each.count, each.span, now);
        end if;
        size := (it.most + 99) / 100;
        loop
            at_ := bide.next_free(it, now);
            exit when each.want <= 0 or (at_ > now and each.holder is null);
            many := least(each.want, size - it.filled);
            return next;
            if at_ > now then
                insert into bide.gate_instant (rate, holder, at) values (each.name, each.holder, at_);
            end if;
            each.want := each.want - many;
            it.last := at_;
            it.filled := it.filled + many;
            if it.filled = size then
                it.ended := (it.ended || at_)[greatest(1, cardinality(it.ended) + 2 - it.most / size):];
                it.filled := 0;
            end if;
        end loop;
        many := null;
        return next;
        update bide.gate_rate r set
            next = case when r.next = 0 then greatest(it.last + it.span, it.until) else r.next end, most = it.most, span = it.span,
            ended = it.ended, last = it.last, filled = it.filled, carried = it.carried, until = it.until
        where r.name = each.name;
    end loop;
end $$;
