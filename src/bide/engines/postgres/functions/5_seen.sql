-- Cancel and reschedule what has not changed since it was seen.

create or replace function bide.cancel_seen(request text, ids bigint[], dues bigint[], bodies bytea[], given bigint)
returns table (result text) language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
-- All of them, if each is due and has the body as it was seen, or none. A body that is null may have changed.
declare
    now bigint := bide.engine_us(given, true) / 1000;
    answered text[] := case when request is not null then bide.recall(request, now) end;
    each record;
begin
    perform bide.limit_waiting(request);
    if answered is null then
        answered := array_fill(null::text, array[cardinality(ids)]);
        for each in
            select o.number, o.until, not o.over and o.due = dues[o.number] and (
                bodies[o.number] is null or exists (select 1 from bide.message m where m.id = o.id and m.body = bodies[o.number])
            ) as same
            from bide.named_all(ids, now) as o
        loop
            answered[each.number] := case
                when each.until is not null then 'running'
                when each.same then 'cancelled'
            end;
        end loop;
        answered := bide.not_found(answered, ids);
        if 'cancelled' = all (answered) then
            delete from bide.message m where m.id = any (ids);
        end if;
        if request is not null then
            insert into bide.answer (name, born, answers) values (request, now, answered);
        else
            perform bide.refuse_unseen(answered, ids, null, null);
        end if;
    end if;
    return query select a from unnest(answered) as a;
end $$;

create or replace function bide.move_seen(
    request text, ids bigint[], delays bigint[], ats bigint[], origins text[], longest bigint, dues bigint[],
    of_id bigint, of_due bigint, given bigint
) returns table (result text) language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
-- Those that have the due times that were seen; a null may be any. And none, unless the message of_id is pending and due at of_due.
declare
    us bigint := bide.engine_us(given, true);
    answered text[] := case when request is not null then bide.recall(request, us / 1000) end;
begin
    perform bide.limit_waiting(request);
    if answered is null then
        if exists (select 1 from unnest(delays, ats) as g(delay, at) where g.delay > longest or g.at - us / 1000 > longest) then
            raise exception 'too far' using errcode = 'BD001';
        end if;
        answered := bide.move_by_ids(
            ids, delays, ats, origins, longest, us, bide.wall_ms(given, us), request is not null, dues, of_id, of_due
        );
        if request is not null then
            insert into bide.answer (name, born, answers) values (request, us / 1000, answered);
        else
            perform bide.refuse_unseen(answered, ids, null, null);
        end if;
    end if;
    return query select a from unnest(answered) as a;
end $$;
