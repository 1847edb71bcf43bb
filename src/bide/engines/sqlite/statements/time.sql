-- name: engine
select raw, mark, claims from engine where space = ?

-- name: keep_engine
insert into engine (space, raw, mark, claims) values (?, ?, ?, ?)
on conflict (space) do update set raw = excluded.raw, mark = excluded.mark, claims = excluded.claims

-- name: data_version
pragma data_version
