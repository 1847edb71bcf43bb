"""Likes are written 500 at a time: one transaction for all that come within a second."""

import json

from redis import Redis

from benchmarks.recipes.shop import REDIS, prepare, seconds, transaction
from benchmarks.recipes.with_celery.app import app

redis = Redis.from_url(REDIS)
app.conf.beat_schedule = {"write": {"task": "like.write", "schedule": seconds("LINGER", 1)}}


def like(*likes: tuple[str, int]) -> None:
    redis.rpush("likes", *map(json.dumps, likes))  # Celery has no batches: a list of our own


@app.task(name="like.write")
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
