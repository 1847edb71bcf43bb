"""Likes are written 500 at a time: one transaction for all that come within a second."""

import os
from dataclasses import dataclass

from bide import Queue
from examples.recipes.database import URL, prepare, transaction

queue = Queue(URL)
LINGER = os.environ.get("LINGER", "1s")


@dataclass
class Like:
    user: str
    post: int


@queue.task("like.write", batch=500, linger=LINGER)
def write(likes: list[Like]) -> None:
    with transaction() as db:
        # A like that comes twice is one row, and the number is counted, not added to. So a batch may come again.
        db.executemany("insert or ignore into likes values (?, ?)", [(like.user, like.post) for like in likes])
        count = "update posts set likes = (select count(*) from likes where post = ?1) where id = ?1"
        db.executemany(count, [[post] for post in {like.post for like in likes}])
        print(f"{len(likes)} likes are written")


if __name__ == "__main__":
    prepare(queue)
    with transaction() as db:
        db.execute("insert or ignore into posts (id) values (1)")
    write.send_many(Like(f"user {number}", post=1) for number in range(400))
