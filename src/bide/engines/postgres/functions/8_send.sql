-- For programs in any language, in their own transaction: what `send` does, with the same options.

create or replace function bide.send_bytes(
    topic text, body bytea, delay interval default null, at timestamptz default null, key text default null,
    if_exists text default 'keep', priority text default 'normal', headers jsonb default null, max_attempts int default 3,
    expires_in interval default null, operation text default null, within text default null, now bigint default null,
    out id text, out due bigint, out outcome text
) language plpgsql set search_path = pg_catalog as $$
-- `now` is for tests, and `within` is the id of the message whose handler sends this.
declare
    put record;
    level int := array_position(array['high', 'normal', 'low'], priority) - 1;
    unseen text := '[[:cntrl:]]';  -- and what no terminal shows, where characters are known
begin
    if getdatabaseencoding() = 'UTF8' then
        unseen := E'[[:cntrl:]\\u0080-\\u00a0\\u00ad\\u061c\\u1680\\u180e\\u2000-\\u200f\\u2028-\\u202f\\u205f-\\u206f\\u3000\\ue000-\\uf8ff\\ufeff]';
    end if;
    if topic is null or topic !~ '^[A-Za-z0-9._-]{1,128}$' then
        raise exception 'A topic is 1 to 128 characters of A-Z a-z 0-9 . _ -' using errcode = 'BD002';
    elsif body is null then
        raise exception 'A message has a body: give null as JSON, which is ''null''.' using errcode = 'BD002';
    elsif delay is not null and at is not null then
        raise exception 'Give delay or at, not both.' using errcode = 'BD002';
    elsif delay < interval '0' then
        raise exception 'delay can''t be negative.' using errcode = 'BD002';
    elsif expires_in <= interval '0' or extract(epoch from expires_in) > 3155760000 then
        raise exception 'expires_in is an interval of more than 0, up to a hundred years.' using errcode = 'BD002';
    elsif not isfinite(at) then
        raise exception 'at is an instant, not infinity.' using errcode = 'BD002';
    elsif key = '' or length(key) > 256 or operation = '' or length(operation) > 128 then
        raise exception 'A key has 1 to 256 characters, and an operation 1 to 128.' using errcode = 'BD002';
    elsif key ~ unseen or operation ~ unseen then
        raise exception 'A key and an operation have printable characters only, and no space but the usual one.'
            using errcode = 'BD002';
    elsif if_exists is null or if_exists not in ('keep', 'replace', 'later', 'error') then
        raise exception 'if_exists is keep, replace, later or error.' using errcode = 'BD002';
    elsif level is null then
        raise exception 'priority is high, normal or low.' using errcode = 'BD002';
    elsif max_attempts is null or max_attempts not between 1 and 1000 then
        raise exception 'max_attempts is 1 to 1,000.' using errcode = 'BD002';
    elsif jsonb_typeof(headers) <> 'object'
        or exists (select 1 from jsonb_each(case jsonb_typeof(headers) when 'object' then headers end) as h
            where jsonb_typeof(h.value) <> 'string' or h.key = '') then
        raise exception 'headers is a JSON object of texts, each with a name.' using errcode = 'BD002';
    elsif (select sum(octet_length(h.key) + octet_length(h.value)) from jsonb_each_text(headers) as h) > 8192 then
        raise exception 'headers have at most 8,192 bytes.' using errcode = 'BD002';
    elsif within !~ '^[0-7][0-9a-f]{15}$' then
        raise exception 'within is the id of a message.' using errcode = 'BD002';
    end if;
    select p.* into put from bide.put(
        null, array[topic], array[body], array[ceil(extract(epoch from delay) * 1000)::bigint],
        array[ceil(extract(epoch from at) * 1000)::bigint], array[level], array[max_attempts],
        array[ceil(extract(epoch from expires_in) * 1000)::bigint], array[headers::text],
        case when key is not null or operation is not null then array[key] end, array[if_exists],
        case when operation is not null then array[concat(topic, E'\n', key, E'\n', operation)] end, array[1],
        array[('x' || within)::bit(64)::bigint], 3155760000000, '{}', now
    ) as p;
    id := lpad(to_hex(put.id), 16, '0');
    due := put.due;
    outcome := put.outcome;
end $$;

create or replace function bide.send(
    topic text, body jsonb default 'null', delay interval default null, at timestamptz default null, key text default null,
    if_exists text default 'keep', priority text default 'normal', headers jsonb default null, max_attempts int default 3,
    expires_in interval default null, operation text default null
) returns text language plpgsql set search_path = pg_catalog as $$
-- The id of the message: a new one, or one that has the key or was sent by the same operation.
declare
    sent record;
begin
    select s.* into sent from bide.send_bytes(
        topic, convert_to(body::text, 'UTF8'), delay, at, key, if_exists, priority, headers, max_attempts, expires_in, operation
    ) as s;
    if sent.outcome = 'exists' then
        raise exception 'Another message holds this key: %.', sent.id using errcode = 'BD003';
    end if;
    return sent.id;
end $$;
