"""A ride is offered to drivers within 1 km, every 30 seconds in a wider circle, until one accepts or none is left."""

import os

from bide import Queue, current
from examples.recipes.database import URL, prepare, transaction

queue = Queue(URL)
WIDEN_AFTER = os.environ.get("WIDEN_AFTER", "30s")
CIRCLES = (1, 3, 5, 10)  # kilometres


def call(ride: int, x: float, y: float) -> None:
    with transaction() as db:
        db.execute("insert into rides (id, x, y, state) values (?, ?, ?, 'open')", [ride, x, y])
        offer.options(key=f"ride:{ride}", connection=db).send(ride)


def accept(ride: int, driver: str) -> bool:
    """Returns False if another driver was faster."""
    with transaction() as db:
        got = "update rides set state = 'taken', driver = ? where id = ? and state = 'open'"
        won = db.execute(got, [driver, ride]).rowcount == 1
        if won:
            offer.cancel(key=f"ride:{ride}", connection=db)
        return won


@queue.task("ride.offer")
def offer(ride: int, circle: int = 0) -> None:
    with transaction() as db:
        found = db.execute("select x, y from rides where id = ? and state = 'open'", [ride]).fetchone()
        if found is None:
            return  # a driver has accepted
        if circle == len(CIRCLES):
            db.execute("update rides set state = 'nobody' where id = ?", [ride])
            print(f"ride {ride}: there is no driver")
            return
        near = "(d.x - r.x) * (d.x - r.x) + (d.y - r.y) * (d.y - r.y) <= ?"
        db.execute(
            f"insert or ignore into offers select r.id, d.name from rides r, drivers d where r.id = ? and {near}",
            [ride, CIRCLES[circle] ** 2],
        )
        # The offers, the next circle and the end of this message are one commit: no circle is left out or comes twice.
        offer.after(WIDEN_AFTER, key=f"ride:{ride}", connection=db).send(ride, circle + 1)
        current().ack(connection=db)


if __name__ == "__main__":
    prepare(queue)
    call(1, 0, 0)
