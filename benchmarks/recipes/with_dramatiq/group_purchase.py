"""A group purchase needs enough members within 24 hours. Then all get the goods, or all get their money back."""

import dramatiq

from benchmarks.recipes.shop import milliseconds, prepare, transaction
from benchmarks.recipes.with_dramatiq import broker  # noqa: F401

CLOSES_AFTER = milliseconds("CLOSES_AFTER", 86400)


def start(group: int, needed: int) -> None:
    close.send_with_options(args=[group], delay=CLOSES_AFTER)
    with transaction() as db:
        db.execute("insert into groups (id, needed, state) values (?, ?, 'open')", [group, needed])


def join(group: int, customer: str) -> bool:
    with transaction() as db:
        row = db.execute("select needed from groups where id = ? and state = 'open'", [group]).fetchone()
        if row is None:
            return False
        db.execute("insert or ignore into members values (?, ?)", [group, customer])
        [members] = db.execute("select count(*) from members where team = ?", [group]).fetchone()
        if members == row[0]:
            db.execute("update groups set state = 'full' where id = ?", [group])
            close.send(group)  # before the commit: it waits for the lock; what is left is done after 24 hours
        return True


@dramatiq.actor
def close(group: int) -> None:
    with transaction() as db:
        db.execute("update groups set state = 'failed' where id = ? and state = 'open'", [group])
        [state] = db.execute("select state from groups where id = ?", [group]).fetchone()
        members = db.execute("select customer from members where team = ?", [group]).fetchall()
    for [customer] in members:  # again if the worker dies here; each is served once
        serve.send(group, customer, "ship to" if state == "full" else "refund")


@dramatiq.actor
def serve(group: int, customer: str, what: str) -> None:
    with transaction() as db:
        if db.execute("insert or ignore into mails values (?)", [f"group {group} {customer}"]).rowcount:
            print(f"{what} {customer}")


if __name__ == "__main__":
    prepare()
    start(1, needed=2)
    start(2, needed=2)
    print("joined:", join(1, "ada"), join(1, "bob"), join(1, "eve"), join(2, "kim"))
