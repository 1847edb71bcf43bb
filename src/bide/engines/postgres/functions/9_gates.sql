-- Gates: who is in, who is called and who waits.
-- Each verb locks the rows of its gates first, by their names: so verbs do not wait for each other in a circle.

create or replace function bide.lock_gates(names text[]) returns bigint language plpgsql as $$
declare
    many bigint;
begin
    perform 1 from bide.gate g where g.name = any (names) order by g.name for update;
    get diagnostics many = row_count;
    return many;
end $$;

create or replace function bide.cleared(it bide.gate, now bigint) returns bide.gate language plpgsql as $$
-- Without what is over.
declare
    many bigint;
begin
    if it.ends <= now then
        delete from bide.gate_place p where p.gate = it.name and p.until <= now;
        get diagnostics many = row_count;
        it.taken := it.taken - many;
        delete from bide.gate_line l where l.gate = it.name and l.until is not null and l.until <= now;
        get diagnostics many = row_count;
        it.taken := it.taken - many;
        it.ends := least(
            9223372036854775807,
            (select min(p.until) from bide.gate_place p where p.gate = it.name),
            (select min(l.until) from bide.gate_line l where l.gate = it.name and l.until is not null)
        );
    end if;
    return it;
end $$;

create or replace function bide.without_silent(it bide.gate, now bigint) returns bide.gate language plpgsql as $$
-- Those leave the line that had to ask again, and did not.
declare
    many bigint;
begin
    if it.asks_by <= now then
        delete from bide.gate_line l where l.gate = it.name and l.asks_by <= now;
        get diagnostics many = row_count;
        it.waiting := it.waiting - many;
        it.asks_by := coalesce(
            (select min(l.asks_by) from bide.gate_line l where l.gate = it.name and l.asks_by is not null), 9223372036854775807
        );
    end if;
    return it;
end $$;

create or replace function bide.store_gate(was bide.gate, it bide.gate, now bigint) returns void language plpgsql as $$
-- An empty gate is kept for ten seconds.
begin
    if it.waiting > 0 and it.taken < it.places then
        it.next := least(it.next, now);
    elsif it.taken = 0 and it.waiting = 0 then
        it.next := least(it.next, now + 10000);
    end if;
    if it is distinct from was then
        update bide.gate g set
            next = it.next, ends = it.ends, token = it.token, number = it.number, places = it.places, taken = it.taken,
            waiting = it.waiting, asks_by = it.asks_by
        where g.name = it.name;
    end if;
end $$;

create or replace function bide.call_waiters(
    it bide.gate, most bigint, turn bigint, again bigint, now bigint, out gate bide.gate, out waiters text[]
) language plpgsql as $$
-- Those whose turn has come. Each has so long to enter, and is named again after so long. They are changed by their names: with
-- a plan that was made when the line was short, a join by their numbers would walk along it.
begin
    gate := it;
    waiters := '{}';
    if it.waiting > 0 and it.taken < it.places and most > 0 then
        waiters := array(
            select l.waiter from bide.gate_line l where l.gate = it.name and l.until is null
            order by l.number limit least(most, it.places - it.taken)
        );
        update bide.gate_line l set until = now + turn, again = now + call_waiters.again, asks_by = null
        where l.waiter = any (waiters) and l.gate = it.name;
        gate.taken := it.taken + cardinality(waiters);
        gate.waiting := it.waiting - cardinality(waiters);
        gate.ends := least(it.ends, now + turn);
        gate.next := least(it.next, now + again);
    end if;
end $$;

create or replace function bide.free_in(of text, now bigint) returns bigint language sql
set search_path = pg_catalog, pg_temp as $$
-- The ms until the first place of a gate is free, whether it is held or kept for a waiter.
    select least(
        (select min(p.until) from bide.gate_place p where p.gate = of),
        (select min(l.until) from bide.gate_line l where l.gate = of and l.until is not null)
    ) - now
$$;

create or replace function bide.admit(
    gates text[], holders text[], leases bigint[], widths bigint[], waiters text[], asks bigint[], given bigint
) returns table (place bigint, token bigint, since bigint, free_in bigint) language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
-- What may not be lost is committed as the server commits.
#variable_conflict use_column
declare
    now bigint;
    each record;
    it bide.gate;
    was bide.gate;
    nth bigint;      -- the waiter's number in the line
    turn bigint;     -- the end of its turn, when it was called
    by_ bigint;      -- by when it has to ask again
begin
    perform bide.limit_waiting('');
    insert into bide.gate (name)
    select distinct e.name collate "C" from unnest(gates) as e(name)
    where not exists (select 1 from bide.gate g where g.name = any (array[e.name])) order by 1
    on conflict do nothing;
    if bide.lock_gates(gates) < (select count(distinct e.name) from unnest(gates) as e(name)) then
        raise exception 'a gate was forgotten meanwhile' using errcode = '40001';
    end if;
    now := bide.engine_us(given, true) / 1000;
    for each in
        select e.* from unnest(gates, holders, leases, widths, waiters, asks) with ordinality
            as e(gate, holder, lease, width, waiter, asks, place)
        order by e.gate collate "C", e.place
    loop
        if it.name is distinct from each.gate then
            if it.name is not null then
                perform bide.store_gate(was, it, now);
            end if;
            select g.* into was from bide.gate g where g.name = each.gate;
            it := bide.without_silent(bide.cleared(was, now), now);
        end if;
        it.places := each.width;
        place := each.place;
        token := null;
        since := null;
        free_in := null;
        nth := null;
        turn := null;
        by_ := null;
        if it.taken > 0 then
            update bide.gate_place p set until = now + each.lease where p.gate = each.gate and p.holder = each.holder
            returning p.token into token;
        end if;
        if token is null and each.waiter is not null and it.taken + it.waiting > 0 then
            select l.number, l.since, l.until, l.asks_by into nth, since, turn, by_ from bide.gate_line l
            where l.gate = each.gate and l.waiter = each.waiter;
        end if;
        if token is not null then
            null;
        elsif turn is not null or (it.taken < it.places and (it.waiting = 0 or nth = (
            select l.number from bide.gate_line l where l.gate = each.gate and l.until is null order by l.number limit 1
        ))) then
            if nth is not null then
                delete from bide.gate_line l where l.gate = each.gate and l.waiter = each.waiter;
                it.taken := it.taken - (turn is not null)::int;
                it.waiting := it.waiting - (turn is null)::int;
                since := null;
            end if;
            token := (greatest(now, (it.token >> 20) + 1) << 20) + floor(random() * 1048576)::bigint;
            insert into bide.gate_place (gate, holder, token, until) values (each.gate, each.holder, token, now + each.lease);
            it.token := token;
            it.taken := it.taken + 1;
        elsif each.waiter is not null and nth is null then
            it.number := it.number + 1;
            it.waiting := it.waiting + 1;
            it.asks_by := least(it.asks_by, now + each.asks);
            since := now;
            insert into bide.gate_line (gate, waiter, number, since, asks_by)
            values (each.gate, each.waiter, it.number, now, now + each.asks);
        elsif each.waiter is not null and coalesce(by_, 0) - now <= each.asks * 2 / 3 then
            it.asks_by := least(it.asks_by, now + each.asks);
            update bide.gate_line l set asks_by = now + each.asks where l.gate = each.gate and l.waiter = each.waiter;
        end if;
        if token is not null then
            it.ends := least(it.ends, now + each.lease);
            it.next := least(it.next, now + each.lease);
        elsif each.waiter is null or each.asks is not null then
            free_in := bide.free_in(each.gate, now);
        end if;
        return next;
    end loop;
    perform bide.store_gate(was, it, now);
end $$;

create or replace function bide.enter(
    gates text[], holders text[], leases bigint[], widths bigint[], waiters text[], asks bigint[], given bigint
) returns table (place bigint, token bigint, since bigint) language sql
set search_path = pg_catalog, pg_temp as $$
-- For the release before.
    select e.place, e.token, e.since from bide.admit(gates, holders, leases, widths, waiters, asks, given) e
$$;

create or replace function bide.keep(gates text[], holders text[], tokens bigint[], lease bigint, given bigint)
returns table (gate text, holder text, token bigint) language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
-- The places of the batch that are still held.
#variable_conflict use_column
declare
    now bigint;
begin
    perform bide.limit_waiting('');
    perform bide.lock_gates(gates);
    now := bide.engine_us(given, true) / 1000;
    update bide.gate g set next = least(g.next, now + lease), ends = now + lease
    where g.name = any (gates) and g.ends > now + lease;
    return query
        update bide.gate_place p set until = now + lease
        from unnest(gates, holders, tokens) as e(gate, holder, token)
        where p.gate = any (array[e.gate]) and p.holder = e.holder and p.token = e.token
        returning p.gate, p.holder, p.token;
end $$;

create or replace function bide.leave(
    request text, gates text[], holders text[], tokens bigint[], turn bigint, again bigint, given bigint
) returns table (place bigint, held boolean, gate text, waiter text) language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
-- One row for each place; and one for each waiter that is called, with the place that made it so.
#variable_conflict use_column
declare
    now bigint := bide.engine_us(given, true) / 1000;
    answered text[] := bide.recall(request, now);
    each record;
    it bide.gate;
    was bide.gate;
    left_ bigint;
    called bigint;  -- the end of its turn
    made record;
begin
    perform set_config('synchronous_commit', 'off', true);  -- a place that is held after all is free when its lease ends
    if answered is null then
        answered := '{}';
        perform bide.limit_waiting(request);
        perform bide.lock_gates(gates);
        now := greatest(now, bide.engine_us(given, false) / 1000);
        for each in
            select e.* from unnest(gates, holders, tokens) with ordinality as e(gate, holder, token, place)
            order by e.gate collate "C", e.place
        loop
            if it.name is distinct from each.gate then
                if it.name is not null then
                    perform bide.store_gate(was, it, now);
                end if;
                select g.* into was from bide.gate g where g.name = each.gate;
                it := bide.without_silent(was, now);
            end if;
            called := null;
            if each.token is not null then
                delete from bide.gate_place p where p.gate = each.gate and p.holder = each.holder and p.token = each.token;
                get diagnostics left_ = row_count;
                it.taken := it.taken - left_;
            else
                delete from bide.gate_line l where l.gate = each.gate and l.waiter = each.holder returning l.until into called;
                get diagnostics left_ = row_count;
                it.taken := it.taken - (called is not null)::int;
                it.waiting := it.waiting - (left_ - (called is not null)::int);
            end if;
            answered := answered || array[each.place::text, left_::text, null, null];
            if it.waiting > 0 and it.taken < it.places then
                made := bide.call_waiters(it, 1000, turn, again, now);
                it := made.gate;
                foreach waiter in array made.waiters loop
                    answered := answered || array[each.place::text, null, each.gate, waiter];
                end loop;
            end if;
        end loop;
        if it.name is not null then
            perform bide.store_gate(was, it, now);
        end if;
        insert into bide.answer (name, born, answers) values (request, now, answered);
    end if;
    for n in 1..cardinality(answered) by 4 loop
        place := answered[n];
        held := answered[n + 1] = '1';
        gate := answered[n + 2];
        waiter := answered[n + 3];
        return next;
    end loop;
end $$;

create or replace function bide.recall_gates(most bigint, turn bigint, again bigint, given bigint)
returns table (gate text, waiter text, next_at bigint, more boolean) language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
-- One row for each waiter that is named; then one that says when to come back. What others have locked is left to them.
#variable_conflict use_column
declare
    now bigint := bide.engine_us(given, true) / 1000;
    it bide.gate;
    was bide.gate;
    named text[];
    made record;
    room bigint := most;
    looked bigint := 0;
begin
    perform set_config('synchronous_commit', 'off', true);
    delete from bide.gate g where g.name = any (array(
        select o.name from bide.gate o where o.next <= now and o.taken = 0 and o.waiting = 0 and o.token >> 20 < now
        order by o.next limit 1000 for update skip locked
    ));
    for was in select g.* from bide.gate g where g.next <= now order by g.next limit 1000 for update skip locked loop
        exit when room <= 0;
        looked := looked + 1;
        it := bide.without_silent(bide.cleared(was, now), now);
        named := array(
            select l.waiter from bide.gate_line l where l.gate = it.name and l.until is not null and l.again <= now
            order by l.number limit room
        );
        update bide.gate_line l set again = now + recall_gates.again where l.waiter = any (named) and l.gate = it.name;
        it.next := least(it.ends, (
            select min(l.again) from bide.gate_line l where l.gate = it.name and l.until is not null
        ));
        made := bide.call_waiters(it, room - cardinality(named), turn, again, now);
        it := made.gate;
        named := named || made.waiters;
        if it.taken > 0 or it.waiting > 0 then
            perform bide.store_gate(was, it, now);
        elsif it.token >> 20 < now then
            delete from bide.gate g where g.name = it.name;
        else  -- the next token would not be higher
            update bide.gate g set
                next = (it.token >> 20) + 1, ends = it.ends, taken = 0, waiting = 0, asks_by = it.asks_by
            where g.name = it.name;
        end if;
        room := room - cardinality(named);
        return query select it.name, n.waiter, null::bigint, null::boolean
            from unnest(named) with ordinality as n(waiter, place) order by n.place;
    end loop;
    with over as (
        delete from bide.gate_rate r where r.name = any (array(
            select o.name from bide.gate_rate o where o.next <= now and greatest(o.last + o.span, o.until) <= now
            order by o.next limit 1000 for update skip locked
        ))
        returning r.name
    )
    delete from bide.gate_instant i using over where i.rate = any (array[over.name]);
    update bide.gate_rate r set next = greatest(r.last + r.span, r.until) where r.name = any (array(
        select o.name from bide.gate_rate o where o.next <= now order by o.next limit 1000 for update skip locked
    ));
    gate := null;
    waiter := null;
    next_at := least(
        (select g.next from bide.gate g order by g.next limit 1), (select r.next from bide.gate_rate r order by r.next limit 1)
    );
    more := next_at <= now and (room <= 0 or looked >= 1000);
    return next;
end $$;
