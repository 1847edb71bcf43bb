"""Ten thousand counters are written again within an hour, at random: the database never feels it."""

import random

from benchmarks.recipes.shop import prepare, seconds, transaction
from benchmarks.recipes.with_celery.app import app

SPREAD = seconds("SPREAD", 3600)


def recount_all() -> None:
    with transaction() as db:
        posts = [post for [post] in db.execute("select id from posts")]
    for post in posts:
        recount.apply_async([post], countdown=random.uniform(0, SPREAD))


@app.task(name="post.recount")
def recount(post: int) -> None:
    with transaction() as db:
        db.execute("update posts set likes = (select count(*) from likes where post = ?1) where id = ?1", [post])
        print(f"post {post} is counted")


if __name__ == "__main__":
    prepare()
    with transaction() as db:
        db.executemany("insert or ignore into posts (id) values (?)", [[number] for number in range(20)])
    recount_all()
