"""A user who has not come for 30 days gets a mail. Each visit starts the 30 days again."""

import dramatiq

from benchmarks.recipes.shop import milliseconds, prepare, transaction
from benchmarks.recipes.with_dramatiq import broker  # noqa: F401

ABSENT_FOR = milliseconds("ABSENT_FOR", 30 * 86400)


def visited(user: str) -> None:
    with transaction() as db:
        db.execute("insert into users (name, visits) values (?, 1) on conflict do update set visits = visits + 1", [user])
        [visits] = db.execute("select visits from users where name = ?", [user]).fetchone()
    recall.send_with_options(args=[user, visits], delay=ABSENT_FOR)  # a message a visit, each in Redis for 30 days


@dramatiq.actor
def recall(user: str, visits: int) -> None:
    with transaction() as db:
        if db.execute("select 1 from users where name = ? and visits = ?", [user, visits]).fetchone() is None:
            return
        if db.execute("insert or ignore into mails values (?)", [f"recall {user} {visits}"]).rowcount:
            print(f"we miss you, {user}")


if __name__ == "__main__":
    prepare()
    visited("ada")
    visited("ada")
