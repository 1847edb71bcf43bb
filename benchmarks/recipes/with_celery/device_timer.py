"""A lamp is switched on and off at set times. Who uses the switch on the wall has the last word."""

import os
import time

from benchmarks.recipes.shop import prepare, transaction
from benchmarks.recipes.with_celery.app import SWEEP, app

app.conf.beat_schedule = {"switch": {"task": "device.switch", "schedule": SWEEP}}


def plan(device: str, on: float, off: float) -> None:
    with transaction() as db:
        planned = "on conflict do update set on_at = excluded.on_at, off_at = excluded.off_at"
        row = [device, on, off]
        db.execute(f"insert into devices (name, state, on_at, off_at) values (?, 'off', ?, ?) {planned}", row)


def by_hand(device: str, state: str) -> None:
    with transaction() as db:
        db.execute("update devices set state = ?, on_at = null, off_at = null where name = ?", [state, device])


@app.task(name="device.switch")
def switch() -> None:
    with transaction() as db:
        now = time.time()
        on = "update devices set state = 'on', on_at = null where on_at <= ? and ? < off_at returning name"
        for [device] in db.execute(on, [now, now]).fetchall():
            print(f"{device} is on")
        off = "update devices set state = 'off', on_at = null, off_at = null where off_at <= ? returning name"
        for [device] in db.execute(off, [now]).fetchall():
            print(f"{device} is off")


if __name__ == "__main__":
    prepare()
    night = float(os.environ.get("NIGHT", "60"))
    plan("lamp", time.time() + night, time.time() + 2 * night)
