"""A reminder at nine in the morning, by the clock on the user's own wall."""

import os
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from benchmarks.recipes.shop import prepare, transaction
from benchmarks.recipes.with_celery.app import SWEEP, app

REMIND_AT = time.fromisoformat(os.environ.get("REMIND_AT", "09:00"))
LATEST = 3 * 3600  # seconds
app.conf.beat_schedule = {"remind": {"task": "user.remind", "schedule": SWEEP}}


def next_morning(zone: str) -> float:
    now = datetime.now(ZoneInfo(zone))
    day = now.date() if now.time() < REMIND_AT else now.date() + timedelta(days=1)
    return datetime.combine(day, REMIND_AT, ZoneInfo(zone)).timestamp()


def remind_me(user: str, zone: str) -> None:
    with transaction() as db:
        db.execute("insert or replace into users (name, zone, due) values (?, ?, ?)", [user, zone, next_morning(zone)])


def move_to(user: str, zone: str) -> None:
    with transaction() as db:
        move = "update users set zone = ?, due = iif(due is null, null, ?) where name = ?"
        db.execute(move, [zone, next_morning(zone), user])


@app.task(name="user.remind")
def remind() -> None:
    with transaction() as db:
        now = datetime.now().timestamp()
        db.execute("update users set due = null where due <= ?", [now - LATEST])
        for [user] in db.execute("update users set due = null where due <= ? returning name", [now]).fetchall():
            print(f"good morning, {user}")


if __name__ == "__main__":
    prepare()
    remind_me("ada", "Asia/Shanghai")
    move_to("ada", "Europe/London")
