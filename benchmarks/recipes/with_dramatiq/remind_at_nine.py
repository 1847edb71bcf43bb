"""A reminder at nine in the morning, by the clock on the user's own wall."""

import os
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

import dramatiq

from benchmarks.recipes.shop import prepare, transaction
from benchmarks.recipes.with_dramatiq import broker  # noqa: F401

REMIND_AT = time.fromisoformat(os.environ.get("REMIND_AT", "09:00"))


def next_morning(zone: str) -> float:
    now = datetime.now(ZoneInfo(zone))
    day = now.date() if now.time() < REMIND_AT else now.date() + timedelta(days=1)
    return datetime.combine(day, REMIND_AT, ZoneInfo(zone)).timestamp()


def remind_me(user: str, zone: str) -> None:
    with transaction() as db:
        due = next_morning(zone)
        db.execute("insert or replace into users (name, zone, due) values (?, ?, ?)", [user, zone, due])
        remind.send_with_options(args=[user, due], delay=int((due - datetime.now().timestamp()) * 1000) + 1)


def move_to(user: str, zone: str) -> None:
    with transaction() as db:
        waits = db.execute("select 1 from users where name = ? and due is not null", [user]).fetchone()
    if waits:
        remind_me(user, zone)  # the old message finds another time


@dramatiq.actor
def remind(user: str, due: float) -> None:
    with transaction() as db:
        mine = db.execute("update users set due = null where name = ? and due = ?", [user, due]).rowcount == 1
        if mine and datetime.now().timestamp() < due + 3 * 3600:
            print(f"good morning, {user}")


if __name__ == "__main__":
    prepare()
    remind_me("ada", "Asia/Shanghai")
    move_to("ada", "Europe/London")
