"""A user who has not come for 30 days gets a mail. Each visit starts the 30 days again."""

import time

from benchmarks.recipes.shop import prepare, seconds, transaction
from benchmarks.recipes.with_celery.app import SWEEP, app

ABSENT_FOR = seconds("ABSENT_FOR", 30 * 86400)
app.conf.beat_schedule = {"recall": {"task": "user.recall", "schedule": SWEEP}}


def visited(user: str) -> None:
    with transaction() as db:
        visit = "insert into users (name, due) values (?, ?) on conflict do update set due = excluded.due"
        db.execute(visit, [user, time.time() + ABSENT_FOR])


@app.task(name="user.recall")
def recall() -> None:
    with transaction() as db:
        for [user] in db.execute("update users set due = null where due <= ? returning name", [time.time()]).fetchall():
            print(f"we miss you, {user}")


if __name__ == "__main__":
    prepare()
    visited("ada")
    visited("ada")
