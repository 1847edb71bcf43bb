"""A reminder at nine in the morning, by the clock on the user's own wall."""

import os
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from bide import Queue
from examples.recipes.database import URL, prepare, transaction

queue = Queue(URL)
REMIND_AT = time.fromisoformat(os.environ.get("REMIND_AT", "09:00"))


def next_morning(zone: str) -> datetime:
    """Reckoned on her calendar, so it is nine o'clock on days when clocks change, too."""
    now = datetime.now(ZoneInfo(zone))
    day = now.date() if now.time() < REMIND_AT else now.date() + timedelta(days=1)
    return datetime.combine(day, REMIND_AT, ZoneInfo(zone))


def remind_me(user: str, zone: str) -> None:
    with transaction() as db:
        db.execute("insert or replace into users (name, zone) values (?, ?)", [user, zone])
        # A reminder that can't be sent in the morning is dropped, and not sent at night.
        remind.at(next_morning(zone), key=user, if_exists="replace", expires_in="3h", connection=db).send(user)


def move_to(user: str, zone: str) -> None:
    with transaction() as db:
        db.execute("update users set zone = ? where name = ?", [zone, user])
        remind.options(connection=db).reschedule(key=user, at=next_morning(zone))


@queue.task("user.remind")
def remind(user: str) -> None:
    with transaction() as db:
        [zone] = db.execute("select zone from users where name = ?", [user]).fetchone()
        today = datetime.now(ZoneInfo(zone)).date()
        if db.execute("insert or ignore into mails values (?)", [f"{user} {today}"]).rowcount:  # once a day
            print(f"good morning, {user}")


if __name__ == "__main__":
    prepare(queue)
    remind_me("ada", "Asia/Shanghai")
    move_to("ada", "Europe/London")
