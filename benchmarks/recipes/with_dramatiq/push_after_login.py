"""Ten seconds after a login, a message is pushed to the device, unless the user has logged out. At most one in an hour."""

import dramatiq
from redis import Redis

from benchmarks.recipes.shop import REDIS, milliseconds, prepare, transaction
from benchmarks.recipes.with_dramatiq import broker  # noqa: F401

PUSH_AFTER = milliseconds("PUSH_AFTER", 10)
redis = Redis.from_url(REDIS)


def log_in(session: str, user: str) -> None:
    with transaction() as db:
        db.execute("insert into sessions values (?, ?)", [session, user])
    if redis.set(f"push:{user}", 1, nx=True, ex=3600):  # one push a user and hour
        push.send_with_options(args=[user], delay=PUSH_AFTER, max_age=PUSH_AFTER + 60_000)


def log_out(session: str) -> None:
    with transaction() as db:
        db.execute("delete from sessions where id = ?", [session])


@dramatiq.actor
def push(user: str) -> None:
    with transaction() as db:
        open_on = db.execute("select id from sessions where user = ? order by id", [user]).fetchall()
    for [session] in open_on:
        print(f"push to {session}: welcome back, {user}")


if __name__ == "__main__":
    prepare()
    log_in("phone", "ada")
    log_in("laptop", "ada")
    log_out("phone")
