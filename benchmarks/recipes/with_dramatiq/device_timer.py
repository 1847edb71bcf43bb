"""A lamp is switched on and off at set times. Who uses the switch on the wall has the last word."""

import os
import sqlite3
import time

import dramatiq

from benchmarks.recipes.shop import prepare, transaction
from benchmarks.recipes.with_dramatiq import broker  # noqa: F401


def plan(device: str, on: float, off: float) -> None:
    with transaction() as db:
        number = new_plan(db, device)
    for state, when in (("on", on), ("off", off)):
        delay = int((when - time.time()) * 1000) + 1
        switch.send_with_options(args=[device, state, number, off], delay=delay)


def by_hand(device: str, state: str) -> None:
    with transaction() as db:
        new_plan(db, device)
        db.execute("update devices set state = ? where name = ?", [state, device])


def new_plan(db: sqlite3.Connection, device: str) -> int:
    db.execute(
        "insert into devices (name, state, plan) values (?, 'off', 1) on conflict do update set plan = plan + 1", [device]
    )
    [number] = db.execute("select plan from devices where name = ?", [device]).fetchone()
    return int(number)


@dramatiq.actor
def switch(device: str, state: str, plan: int, off: float) -> None:
    if state == "on" and time.time() >= off:
        return
    with transaction() as db:
        if db.execute("update devices set state = ? where name = ? and plan = ?", [state, device, plan]).rowcount:
            print(f"{device} is {state}")


if __name__ == "__main__":
    prepare()
    night = float(os.environ.get("NIGHT", "60"))
    plan("lamp", time.time() + night, time.time() + 2 * night)
