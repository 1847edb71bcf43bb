"""Likes are written 500 at a time: one transaction for all that come within a second."""

import json

import dramatiq
from redis import Redis

from benchmarks.recipes.shop import REDIS, milliseconds, prepare, transaction
from benchmarks.recipes.with_dramatiq import broker  # noqa: F401

redis = Redis.from_url(REDIS)
LINGER = milliseconds("LINGER", 1)


def like(*likes: tuple[str, int]) -> None:
    redis.rpush("likes", *map(json.dumps, likes))  # Dramatiq has no batches: a list of our own
    if redis.set("likes:soon", 1, nx=True, px=LINGER):
        write.send_with_options(delay=LINGER)


@dramatiq.actor
def write() -> None:
    with redis.lock("likes:lock", timeout=60):  # one at a time, or one would cut off what the other has read
        while likes := [json.loads(each) for each in redis.lrange("likes", 0, 499)]:
            with transaction() as db:
                db.executemany("insert or ignore into likes values (?, ?)", likes)
                count = "update posts set likes = (select count(*) from likes where post = ?1) where id = ?1"
                db.executemany(count, [[post] for post in {post for _, post in likes}])
                print(f"{len(likes)} likes are written")
            redis.ltrim("likes", len(likes), -1)


if __name__ == "__main__":
    prepare()
    with transaction() as db:
        db.execute("insert or ignore into posts (id) values (1)")
    like(*((f"user {number}", 1) for number in range(400)))
