-- All statements of gates. Each begins with a line `-- name: …`, by which it is run.

-- Gates.
-- name: find_gate
select id, places, taken, waiting, ends, next, asks_by from bide_gate where space = :space and name = :name

-- name: make_gate
insert into bide_gate (space, name, places, taken, waiting, ends, next, asks_by)
values (:space, :name, :places, :taken, :waiting, :ends, :next, :asks_by)

-- name: keep_gate
update bide_gate set places = ?, taken = ?, waiting = ?, ends = ?, next = ?, asks_by = ? where id = ?

-- name: drop_gate
delete from bide_gate where id = ?

-- name: gates_to_recall
select name, id, places, taken, waiting, ends, next, asks_by from bide_gate
where space = :space and next <= :now order by next limit :limit

-- name: first_recall
-- When there is something to do again.
select
    (select min(next) from bide_gate where space = :space),
    (select min(next) from bide_gate_rate where space = :space)

-- Places.
-- name: place
select token from bide_gate_place where gate = ? and holder = ?

-- name: take_place
insert into bide_gate_place (gate, holder, token, until) values (?, ?, ?, ?)

-- name: renew_place
update bide_gate_place set until = ? where gate = ? and holder = ?

-- name: keep_place
update bide_gate_place set until = ? where gate = ? and holder = ? and token = ?

-- name: free_place
delete from bide_gate_place where gate = ? and holder = ? and token = ?

-- name: ended_places
delete from bide_gate_place where gate = ? and until <= ?

-- name: first_end
-- Of the places and turns of a gate.
select
    (select min(until) from bide_gate_place where gate = :gate),
    (select min(until) from bide_gate_line where gate = :gate and until is not null)

-- Waiters.
-- name: waiter
select id, since, until, asks_by from bide_gate_line where gate = ? and waiter = ?

-- name: first_waiting
select id, waiter from bide_gate_line where gate = ? and until is null order by id limit ?

-- name: wait
insert into bide_gate_line (gate, waiter, since, asks_by) values (?, ?, ?, ?)

-- name: note_asking
update bide_gate_line set asks_by = ? where id = ?

-- name: drop_silent
delete from bide_gate_line where gate = ? and asks_by <= ?

-- name: first_asking
select min(asks_by) from bide_gate_line where gate = ? and asks_by is not null

-- name: stop_waiting
delete from bide_gate_line where id = ?

-- name: call
update bide_gate_line set until = ?, again = ?, asks_by = null where id = ?

-- name: to_name_again
select id, waiter from bide_gate_line where gate = :gate and until is not null and again <= :now order by id limit :limit

-- name: name_again
update bide_gate_line set again = ? where id = ?

-- name: first_again
select min(again) from bide_gate_line where gate = ? and until is not null

-- name: ended_turns
delete from bide_gate_line where gate = ? and until is not null and until <= ?

-- Rates.
-- name: rate
select spending from bide_gate_rate where space = :space and name = :name

-- name: keep_rate
insert into bide_gate_rate (space, name, next, spending) values (:space, :name, :next, :spending)
on conflict (space, name) do update set next = excluded.next, spending = excluded.spending

-- name: rates_to_forget
select name from bide_gate_rate where space = :space and next <= :now order by next limit :limit

-- name: forget_rate
delete from bide_gate_rate where space = :space and name = :name

-- name: kept_instant
select at from bide_gate_instant where space = :space and name = :name and holder = :holder

-- name: keep_instant
insert into bide_gate_instant (space, name, holder, at) values (:space, :name, :holder, :at)
on conflict (space, name, holder) do update set at = excluded.at

-- name: drop_instant
delete from bide_gate_instant where space = :space and name = :name and holder = :holder

-- name: forget_instants
delete from bide_gate_instant where space = :space and name = :name and at < :before
