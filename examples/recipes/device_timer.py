"""A lamp is switched on and off at set times. Who uses the switch on the wall has the last word."""

import os
import sqlite3
from datetime import UTC, datetime, timedelta

from bide import Queue
from examples.recipes.database import URL, prepare, transaction

queue = Queue(URL)


def plan(device: str, on: datetime, off: datetime) -> None:
    with transaction() as db:
        number = new_plan(db, device)
        # If no worker runs before the lamp should be off again, it is not switched on at all.
        night = switch.options(if_exists="replace", connection=db)
        night.at(on, key=f"{device}:on", expires_in=off - on).send(device, "on", number)
        night.at(off, key=f"{device}:off").send(device, "off", number)


def by_hand(device: str, state: str) -> None:
    with transaction() as db:
        new_plan(db, device)
        db.execute("update devices set state = ? where name = ?", [state, device])
        for end in ("on", "off"):
            switch.cancel(key=f"{device}:{end}", connection=db)


def new_plan(db: sqlite3.Connection, device: str) -> int:
    """What is on its way from an older plan does nothing any more."""
    db.execute("insert into devices values (?, 'off', 1) on conflict do update set plan = plan + 1", [device])
    [number] = db.execute("select plan from devices where name = ?", [device]).fetchone()
    return int(number)


@queue.task("device.switch")
def switch(device: str, state: str, plan: int) -> None:
    with transaction() as db:
        # The new state, not "the other one": so a message that comes twice switches once.
        if db.execute("update devices set state = ? where name = ? and plan = ?", [state, device, plan]).rowcount:
            print(f"{device} is {state}")


if __name__ == "__main__":
    prepare(queue)
    night = timedelta(seconds=float(os.environ.get("NIGHT", "60")))
    dusk = datetime.now(UTC) + night
    plan("lamp", dusk, dusk + night)
