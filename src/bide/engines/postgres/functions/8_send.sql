-- For programs in any language, in their own transaction: what `send` does, with the same options.

create or replace function bide.is_seen(name text) returns boolean language plpgsql stable set search_path = pg_catalog, pg_temp as $$
-- Whether all characters are printable, as Python has it, and no space is one but the usual one. Where the database does not know
-- characters, only those of ASCII can be looked at.
begin
    return name !~ '[[:cntrl:]]' and (getdatabaseencoding() <> 'UTF8' or name !~ (
        E'[\\u0080-\\u00a0\\u00ad\\u0600-\\u0605\\u061c\\u06dd\\u070f\\u0890\\u0891\\u08e2\\u1680\\u180e\\u2000-\\u200f'
        || E'\\u2028-\\u202f\\u205f-\\u206f\\u3000\\ue000-\\uf8ff\\ufeff\\ufff0-\\ufffb\\ufffe\\uffff\\U000110bd\\U000110cd'
        || E'\\U00013430-\\U0001343f\\U0001bca0-\\U0001bca3\\U0001d173-\\U0001d17a\\U000e0000-\\U000e007f\\U000f0000-\\U0010ffff]'
    ));
end $$;

create or replace function bide.is_readable(body jsonb) returns boolean language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
-- Whether Python can read it: JSON in PostgreSQL may be nested more deeply, and numbers may be longer.
declare
    as_text text := body::text;
begin
    return (as_text !~ '[0-9]{255}' or not jsonb_path_exists(body, '$.** ? (@ >= 1e308 || @ <= -1e308)'))
        and (length(as_text) - length(translate(as_text, '[{', '')) < 500 or not jsonb_path_exists(body, 'strict $.**{500}'));
end $$;

create or replace function bide.is_json(body bytea) returns boolean language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    return convert_from(body, 'UTF8')::json is not null;
exception when others then
    return false;
end $$;

create or replace function bide.send_bytes(
    topic text, body bytea, delay interval default null, at timestamptz default null, key text default null,
    if_exists text default 'keep', priority text default 'normal', headers jsonb default null, max_attempts int default 3,
    expires_in interval default null, operation text default null, max_body int default 262144, max_wait interval default null,
    unique_for interval default null, out id text, out due bigint, out outcome text
) language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    within text;  -- tests make arguments of this, the id of the message whose handler sends, and
    now bigint;  -- the engine's time
    put record;
    level int := array_position(array['high', 'normal', 'low'], priority) - 1;
begin
    if topic is null or topic !~ '^[A-Za-z0-9._-]{1,128}$' then
        raise exception 'A topic is 1 to 128 characters of A-Z a-z 0-9 . _ -' using errcode = 'BD002';
    elsif body is null then
        raise exception 'A message has a body: give null as JSON, which is ''null''.' using errcode = 'BD002';
    elsif max_body is null or max_body not between 1 and 268435456 then
        raise exception 'max_body is 1 to 268,435,456 bytes.' using errcode = 'BD002';
    elsif octet_length(body) > max_body then
        raise exception 'The body is % bytes and the limit is %. Store it elsewhere and send its address, or give max_body, if the '
            'queue in Python has such a max_body, too.', octet_length(body), max_body using errcode = 'BD002';
    elsif delay is not null and at is not null then
        raise exception 'Give delay or at, not both.' using errcode = 'BD002';
    elsif delay < interval '0' then
        raise exception 'delay can''t be negative.' using errcode = 'BD002';
    elsif extract(epoch from delay) > 3155760000 then
        raise exception 'A message can''t be due more than a hundred years from now.' using errcode = 'BD001';
    elsif expires_in <= interval '0' or extract(epoch from expires_in) > 3155760000 then
        raise exception 'expires_in is an interval of more than 0, up to a hundred years.' using errcode = 'BD002';
    elsif not isfinite(at) then
        raise exception 'at is an instant, not infinity.' using errcode = 'BD002';
    elsif key = '' or length(key) > 256 or operation = '' or length(operation) > 128 then
        raise exception 'A key has 1 to 256 characters, and an operation 1 to 128.' using errcode = 'BD002';
    elsif not bide.is_seen(key) or not bide.is_seen(operation) then
        raise exception 'A key and an operation have printable characters only, and no space but the usual one.'
            using errcode = 'BD002';
    elsif if_exists is null or if_exists not in ('keep', 'replace', 'later', 'merge', 'error') then
        raise exception 'if_exists is keep, replace, later, merge or error.' using errcode = 'BD002';
    elsif max_wait is not null and (key is null or if_exists <> 'later') then
        raise exception 'max_wait is for messages that each send moves later: give it with a key and if_exists => ''later''.'
            using errcode = 'BD002';
    elsif max_wait <= interval '0' or max_wait < delay or extract(epoch from max_wait) > 3155760000 then
        raise exception 'max_wait is an interval of more than 0, of no less than delay, up to a hundred years.'
            using errcode = 'BD002';
    elsif if_exists = 'merge' and (key is null or octet_length(body) > max_body - 2 or not bide.is_json(body)) then
        raise exception 'if_exists => ''merge'' makes a list of JSON bodies: give it with a key, and a body of JSON of at most % bytes.',
            max_body - 2 using errcode = 'BD002';
    elsif unique_for is not null and (key is null or if_exists not in ('keep', 'error')) then
        raise exception 'unique_for says how long a key is sent once: give it with a key, and if_exists => ''keep'' or ''error''.'
            using errcode = 'BD002';
    elsif unique_for <= interval '0' or extract(epoch from unique_for) > 3155760000 then
        raise exception 'unique_for is an interval of more than 0, up to a hundred years.' using errcode = 'BD002';
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
    end if;
    select a.* into put from bide.accept(
        null, array[topic], array[case if_exists when 'merge' then '['::bytea || body || ']'::bytea else body end], array[ceil(extract(epoch from delay) * 1000)::bigint],
        array[ceil(extract(epoch from at) * 1000)::bigint], array[level], array[max_attempts],
        array[ceil(extract(epoch from expires_in) * 1000)::bigint],
        array[case when max_wait is null then headers else headers - 'bide-first' end::text],
        case when key is not null or operation is not null then array[key] end,
        array[if_exists], array[ceil(extract(epoch from max_wait) * 1000)::bigint], array[case if_exists when 'merge' then max_body end],
        array[ceil(extract(epoch from unique_for) * 1000)::bigint], null,
        case when operation is not null then array[concat(topic, E'\n', key, E'\n', operation)] end, array[1],
        array[('x' || within)::bit(64)::bigint], 3155760000000, '{}', now
    ) as a;
    id := lpad(to_hex(put.id), 16, '0');
    due := put.due;
    outcome := put.outcome;
end $$;

create or replace function bide.send(
    topic text, body jsonb default 'null', delay interval default null, at timestamptz default null, key text default null,
    if_exists text default 'keep', priority text default 'normal', headers jsonb default null, max_attempts int default 3,
    expires_in interval default null, operation text default null, max_body int default 262144, max_wait interval default null,
    unique_for interval default null
) returns text language plpgsql set search_path = pg_catalog, pg_temp as $$
-- The id of the message: a new one, or one that has the key or was sent by the same operation.
declare
    sent record;
begin
    if not bide.is_readable(body) then
        raise exception 'Python can''t read this body: it is nested deeper than 500 times, or a number is over 1e308.'
            using errcode = 'BD002';
    end if;
    select s.* into sent from bide.send_bytes(
        topic, convert_to(body::text, 'UTF8'), delay, at, key, if_exists, priority, headers, max_attempts, expires_in, operation,
        max_body, max_wait, unique_for
    ) as s;
    if sent.outcome = 'exists' then
        raise exception 'Another message holds this key: %.', sent.id using errcode = 'BD003';
    end if;
    return sent.id;
end $$;
