"""A ride is offered to drivers within 1 km, every 30 seconds in a wider circle, until one accepts or none is left."""

import dramatiq

from benchmarks.recipes.shop import milliseconds, prepare, transaction
from benchmarks.recipes.with_dramatiq import broker  # noqa: F401

WIDEN_AFTER = milliseconds("WIDEN_AFTER", 30)
CIRCLES = (1, 3, 5, 10)  # kilometres


def call(ride: int, x: float, y: float) -> None:
    with transaction() as db:
        db.execute("insert into rides (id, x, y, state) values (?, ?, ?, 'open')", [ride, x, y])
    offer.send(ride)  # if this process dies here, the customer sees no offers, and calls again


def accept(ride: int, driver: str) -> bool:
    with transaction() as db:
        got = "update rides set state = 'taken', driver = ? where id = ? and state = 'open'"
        return db.execute(got, [driver, ride]).rowcount == 1


@dramatiq.actor
def offer(ride: int, circle: int = 0) -> None:
    with transaction() as db:
        found = db.execute("select x, y from rides where id = ? and state = 'open'", [ride]).fetchone()
        if found is None:
            return
        if circle == len(CIRCLES):
            db.execute("update rides set state = 'nobody' where id = ?", [ride])
            print(f"ride {ride}: there is no driver")
            return
        near = "(d.x - r.x) * (d.x - r.x) + (d.y - r.y) * (d.y - r.y) <= ?"
        db.execute(
            f"insert or ignore into offers select r.id, d.name from rides r, drivers d where r.id = ? and {near}",
            [ride, CIRCLES[circle] ** 2],
        )
    offer.send_with_options(args=[ride, circle + 1], delay=WIDEN_AFTER)  # twice if the worker dies here; offers are made once


if __name__ == "__main__":
    prepare()
    call(1, 0, 0)
