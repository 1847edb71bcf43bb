"""A user who has not come for 30 days gets a mail. Each visit starts the 30 days again."""

import os

from bide import Queue
from examples.recipes.database import URL, prepare, transaction

queue = Queue(URL)
ABSENT_FOR = os.environ.get("ABSENT_FOR", "30d")


def visited(user: str) -> None:
    with transaction() as db:
        db.execute("insert into users (name, visits) values (?, 1) on conflict do update set visits = visits + 1", [user])
        [visits] = db.execute("select visits from users where name = ?", [user]).fetchone()
        # One message a user, however often she comes: each visit replaces it.
        recall.after(ABSENT_FOR, key=user, if_exists="replace", connection=db).send(user, visits)


@queue.task("user.recall")
def recall(user: str, visits: int) -> None:
    with transaction() as db:
        # If she comes at this very moment, the number has changed, and a new message waits for her.
        if db.execute("select 1 from users where name = ? and visits = ?", [user, visits]).fetchone() is None:
            return
        if db.execute("insert or ignore into mails values (?)", [f"recall {user} {visits}"]).rowcount:
            print(f"we miss you, {user}")


if __name__ == "__main__":
    prepare(queue)
    visited("ada")
    visited("ada")
