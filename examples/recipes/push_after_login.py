"""Ten seconds after a login, a message is pushed to the device, unless the user has logged out. At most one in an hour."""

import os

from bide import Queue
from examples.recipes.database import URL, prepare, transaction

queue = Queue(URL)
PUSH_AFTER = os.environ.get("PUSH_AFTER", "10s")


def log_in(session: str, user: str) -> None:
    with transaction() as db:
        db.execute("insert into sessions values (?, ?)", [session, user])
        # One push a user and hour, on however many devices she logs in. One that is a minute late disturbs, and is dropped.
        push.after(PUSH_AFTER, key=user, unique_for="1h", expires_in="1m", connection=db).send(user)


def log_out(session: str) -> None:
    with transaction() as db:
        db.execute("delete from sessions where id = ?", [session])


@queue.task("user.push")
def push(user: str) -> None:
    with transaction() as db:  # asks now: she may have left one device, and still use another
        open_on = db.execute("select id from sessions where user = ? order by id", [user]).fetchall()
    for [session] in open_on:
        print(f"push to {session}: welcome back, {user}")


if __name__ == "__main__":
    prepare(queue)
    log_in("phone", "ada")
    log_in("laptop", "ada")
    log_out("phone")
