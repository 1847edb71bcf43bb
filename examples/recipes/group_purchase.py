"""A group purchase needs enough members within 24 hours. Then all get the goods, or all get their money back."""

import os
import sqlite3

from bide import Queue, current
from examples.recipes.database import URL, prepare, transaction

queue = Queue(URL)
CLOSES_AFTER = os.environ.get("CLOSES_AFTER", "24h")


def start(group: int, needed: int) -> None:
    with transaction() as db:
        db.execute("insert into groups values (?, ?, 'open')", [group, needed])
        close.after(CLOSES_AFTER, key=f"group:{group}", connection=db).send(group)


def join(group: int, customer: str) -> bool:
    """Returns False if the group is closed: then don't take the money."""
    with transaction() as db:
        row = db.execute("select needed from groups where id = ? and state = 'open'", [group]).fetchone()
        if row is None:
            return False
        db.execute("insert or ignore into members values (?, ?)", [group, customer])
        [members] = db.execute("select count(*) from members where team = ?", [group]).fetchone()
        if members == row[0]:  # the last one: no need to wait for the end
            db.execute("update groups set state = 'full' where id = ?", [group])
            close.cancel(key=f"group:{group}", connection=db)
            settle(db, group, "ship to")
        return True


@queue.task("group.close")
def close(group: int) -> None:
    with transaction() as db:
        if db.execute("update groups set state = 'failed' where id = ? and state = 'open'", [group]).rowcount:
            settle(db, group, "refund")


def settle(db: sqlite3.Connection, group: int, what: str) -> None:
    """A message for each member, committed with the group's new state: nobody is forgotten, whichever process dies."""
    members = db.execute("select customer from members where team = ?", [group])
    serve.options(connection=db).send_many({"customer": customer, "what": what} for [customer] in members)


@queue.task("group.serve")
def serve(customer: str, what: str) -> None:
    with transaction() as db:
        if db.execute("insert or ignore into mails values (?)", [current().id]).rowcount:
            print(f"{what} {customer}")


if __name__ == "__main__":
    prepare(queue)
    start(1, needed=2)
    start(2, needed=2)
    print("joined:", join(1, "ada"), join(1, "bob"), join(1, "eve"), join(2, "kim"))
