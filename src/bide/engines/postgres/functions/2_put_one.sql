-- Accepting one message, which may have a key that another one holds.

create or replace function bide.joined(held bytea, new bytea) returns bytea language sql immutable as $$
-- Two lists in JSON as one, joined as texts; null when the first is none. core/key_rules.py is the same for Python.
    select case
        when held = '[]' then new
        when octet_length(held) > 2 and get_byte(held, 0) = 91 and get_byte(held, octet_length(held) - 1) = 93
            and get_byte(held, octet_length(held) - 2) not in (9, 10, 13, 32)
            then substring(held from 1 for octet_length(held) - 1) || ',' || substring(new from 2)
    end
$$;

create or replace function bide.first_sent(headers text) returns bigint language sql immutable as $$
-- When the first of the sends was that each move a message later: that is in its first header.
    select substring(headers from '^{"bide-first":"([0-9]{13})"')::bigint
$$;

create or replace function bide.with_first(headers text, first bigint) returns text language sql immutable as $$
-- Headers that begin with that time, in place of another that they began with.
    select '{"bide-first":"' || lpad(first::text, 13, '0') || '"' || case rest when '{}' then '}' else ',' || substr(rest, 2) end
    from regexp_replace(coalesce(headers, '{}'), '^{"bide-first":"[0-9]{13}",?', '{') as rest
$$;

create or replace function bide.accept_one(
    new_id bigint, of text, new_body bytea, new_due bigint, new_level int, new_most int, new_life bigint, new_headers text,
    new_key text, rule text, max_wait bigint, largest int, past jsonb, within_id bigint, us bigint, wall bigint,
    new_instant boolean, out id bigint, out due bigint, out outcome text
) language plpgsql as $$
-- A message that may have a key, which another one may hold. `rule` is what if_exists says. Largest: the largest body that holds
-- several. Past: of a message that had attempts elsewhere, or is a dead letter.
declare
    now bigint := us / 1000;
    records bytea[];
    holder bide.message;
    first bigint := (us + 999) / 1000;
    gathered bytea;
    starts bigint;  -- its life
begin
    if past is not null then
        select array_agg(decode(r.hex, 'hex') order by r.place) into records
        from jsonb_array_elements_text(past->'traces') with ordinality as r(hex, place);
    end if;
    if max_wait is not null then
        new_headers := bide.with_first(new_headers, first);
        if new_due > first + max_wait then
            new_due := first + max_wait;
            new_instant := null;
        end if;
    end if;
    due := new_due;
    if (past->>'dead')::boolean then
        insert into bide.dead (id, died, due, attempt, most, level, topic, body, headers, key, life, expires, error, traces)
        values (
            new_id, now, new_due, (past->>'attempt')::int, new_most, new_level, of, new_body, new_headers, new_key, new_life,
            coalesce(bide.since_of(new_due, new_instant, now, wall), new_due) + new_life, past->>'error', records
        );
        perform bide.count_dead(array[of], (past->>'most')::bigint);
        id := new_id;
        outcome := 'created';
        return;
    end if;
    loop
        if new_key is not null then
            select m.* into holder from bide.message m where m.topic = of and m.key = new_key;
            if holder.until is not null and rule in ('keep', 'error') and holder.id is distinct from within_id then
                id := holder.id;  -- it is running, and not locked: nothing of it is changed
                due := holder.due;
                outcome := case rule when 'keep' then 'kept' else 'exists' end;
                return;
            elsif holder.id is not null then
                select m.* into holder from bide.message m where m.topic = of and m.key = new_key for update;
            end if;
            if holder.id is not null and holder.until is null and holder.expires <= now then
                delete from bide.message m where m.id = holder.id;
            elsif holder.id is not null then
                if rule in ('keep', 'error') and (holder.until is null or holder.id is distinct from within_id) then
                    id := holder.id;
                    due := holder.due;
                    outcome := case rule when 'keep' then 'kept' else 'exists' end;
                    return;
                elsif holder.until is null and rule = 'merge' and holder.attempt = 0 then
                    gathered := (select bide.joined(m.body, new_body) from bide.message m where m.id = holder.id);
                    if gathered is null or octet_length(gathered) <= largest then
                        update bide.message m set body = gathered where m.id = holder.id and gathered is not null;
                        id := holder.id;
                        due := holder.due;
                        outcome := case when gathered is null then 'exists' else 'merged' end;
                        return;
                    end if;
                elsif holder.until is null and rule <> 'merge' then
                    id := holder.id;
                    outcome := case rule when 'later' then 'postponed' else 'replaced' end;
                    if rule = 'later' then
                        first := bide.first_sent(holder.headers);
                        if max_wait is not null and holder.attempt = 0 and first is not null then
                            -- A delivery ends what was sent before.
                            new_headers := bide.with_first(new_headers, first);
                            if new_due > first + max_wait then
                                new_due := first + max_wait;
                                new_instant := null;
                            end if;
                        end if;
                        due := greatest(new_due, holder.due);
                        -- If one of the two is an instant, so is the later: rather late than early.
                        new_instant := case when due > wall and (new_instant or holder.by_clock) then true end;
                    end if;
                    starts := bide.since_of(due, new_instant, now, wall);
                    update bide.message m set
                        level = new_level, due = accept_one.due, most = new_most, body = new_body, headers = new_headers,
                        life = new_life, expires = coalesce(starts, accept_one.due) + new_life, since = starts, by_clock = new_instant,
                        began = null, traces = null, attempt = 0, error = null
                    where m.id = holder.id;
                    return;
                end if;
                update bide.message m set key = null where m.id = holder.id;  -- it can't be changed, and goes on without
            end if;
        end if;
        starts := bide.since_of(new_due, new_instant, now, wall);
        insert into bide.message as m (
            id, due, most, level, topic, body, headers, key, life, expires, attempt, error, traces, since, by_clock
        ) values (
            new_id, new_due, new_most, new_level, of, new_body, new_headers, new_key, new_life,
            coalesce(starts, new_due) + new_life, coalesce((past->>'attempt')::int, 0), past->>'error', records, starts, new_instant
        )
        on conflict (topic, key) where key is not null do nothing
        returning m.id into id;
        if id is not null then
            outcome := 'created';
            return;
        end if;
    end loop;
end $$;

create or replace function bide.accept_for_a_time(
    new_id bigint, of text, new_body bytea, new_due bigint, new_level int, new_most int, new_life bigint, new_headers text,
    new_key text, rule text, max_wait bigint, largest int, unique_for bigint, past jsonb, within_id bigint, us bigint, wall bigint,
    new_instant boolean, out id bigint, out due bigint, out outcome text
) language plpgsql as $$
-- The same of a message that is the only one of its key for so many ms, if unique_for says so. That is remembered as an
-- operation that has no name, and whose birth is such that it is over then.
declare
    now bigint := us / 1000;
    known text;
begin
    loop
        if unique_for is not null then
            insert into bide.answer as a (name, born, answers)
            values (
                concat(of, E'\n', new_key, E'\n'), now + unique_for - 600000, array[concat(new_id, ' ', new_due, ' duplicate')]
            )
            on conflict (name) do update set born = excluded.born, answers = excluded.answers where a.born <= now - 600000;
        end if;
        if found or unique_for is null then
            select p.* into id, due, outcome from bide.accept_one(
                new_id, of, new_body, new_due, new_level, new_most, new_life, new_headers, new_key, rule, max_wait, largest, past,
                within_id, us, wall, new_instant
            ) as p;
            if unique_for is not null and outcome <> 'created' then  -- another message holds the key, and was not sent for a time
                delete from bide.answer a where a.name = concat(of, E'\n', new_key, E'\n');
            end if;
            return;
        end if;
        select a.answers[1] into known from bide.answer a where a.name = concat(of, E'\n', new_key, E'\n');
        if known is not null then
            id := split_part(known, ' ', 1);
            due := split_part(known, ' ', 2);
            outcome := case rule when 'keep' then 'duplicate' else 'exists' end;
            return;
        end if;
    end loop;
end $$;
