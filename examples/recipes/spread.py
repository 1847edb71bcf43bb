"""Ten thousand counters are written again within an hour, at random: the database never feels it."""

import os
import random

from bide import Outgoing, Queue
from examples.recipes.database import URL, prepare, transaction

queue = Queue(URL)
SPREAD = float(os.environ.get("SPREAD", "3600"))  # seconds


def recount_all() -> None:
    with transaction() as db:
        posts = [post for [post] in db.execute("select id from posts")]
    # With a key, a post that waits from the last time is not counted twice.
    recount.send_many(Outgoing({"post": post}, delay=random.uniform(0, SPREAD), key=f"post:{post}") for post in posts)


@queue.task("post.recount")
def recount(post: int) -> None:
    with transaction() as db:  # sets the number, and adds nothing to it: so twice does no harm
        db.execute("update posts set likes = (select count(*) from likes where post = ?1) where id = ?1", [post])
        print(f"post {post} is counted")


if __name__ == "__main__":
    prepare(queue)
    with transaction() as db:
        db.executemany("insert or ignore into posts (id) values (?)", [[number] for number in range(20)])
    recount_all()
