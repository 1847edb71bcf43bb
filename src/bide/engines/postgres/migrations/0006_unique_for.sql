-- The functions that send have one more option.

drop function if exists
    bide.send(text, jsonb, interval, timestamptz, text, text, text, jsonb, int, interval, text, int, interval);
drop function if exists
    bide.send_bytes(text, bytea, interval, timestamptz, text, text, text, jsonb, int, interval, text, int, interval);
