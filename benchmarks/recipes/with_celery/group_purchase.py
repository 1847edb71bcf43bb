"""A group purchase needs enough members within 24 hours. Then all get the goods, or all get their money back."""

import time

from benchmarks.recipes.shop import prepare, seconds, transaction
from benchmarks.recipes.with_celery.app import SWEEP, app

CLOSES_AFTER = seconds("CLOSES_AFTER", 86400)
app.conf.beat_schedule = {"close": {"task": "group.close", "schedule": SWEEP}}


def start(group: int, needed: int) -> None:
    with transaction() as db:
        row = [group, needed, time.time() + CLOSES_AFTER]
        db.execute("insert into groups (id, needed, state, due) values (?, ?, 'open', ?)", row)


def join(group: int, customer: str) -> bool:
    with transaction() as db:
        row = db.execute("select needed from groups where id = ? and state = 'open'", [group]).fetchone()
        if row is None:
            return False
        db.execute("insert or ignore into members values (?, ?)", [group, customer])
        [members] = db.execute("select count(*) from members where team = ?", [group]).fetchone()
        if members == row[0]:
            db.execute("update groups set state = 'full' where id = ?", [group])
        return True


@app.task(name="group.close")
def close() -> None:
    """Also finds the members of closed groups whose task was lost: it looks at what has not been done."""
    with transaction() as db:
        db.execute("update groups set state = 'failed' where state = 'open' and due <= ?", [time.time()])
        closed = "select team, customer, state from members join groups on team = id where state != 'open' and not exists"
        left = db.execute(f"{closed} (select 1 from mails where what = 'group ' || team || ' ' || customer)").fetchall()
    for group, customer, state in left:
        serve.delay(group, customer, "ship to" if state == "full" else "refund")


@app.task(name="group.serve")
def serve(group: int, customer: str, what: str) -> None:
    with transaction() as db:
        if db.execute("insert or ignore into mails values (?)", [f"group {group} {customer}"]).rowcount:
            print(f"{what} {customer}")


if __name__ == "__main__":
    prepare()
    start(1, needed=2)
    start(2, needed=2)
    print("joined:", join(1, "ada"), join(1, "bob"), join(1, "eve"), join(2, "kim"))
