"""A webhook is tried again after 1 s, 5 s, 10 s and 1 min. Then it is a dead letter, and somebody is told."""

import os
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from bide import Bury, Delivery, Queue, current, steps
from examples.recipes.database import URL

queue = Queue(URL)
LADDER = os.environ.get("LADDER", "1s 5s 10s 1m").split()


def tell(delivery: Delivery, reason: str) -> None:
    print(f"webhook for order {delivery.body['order']} is given up after {delivery.attempt} attempts: {reason}")


# `bide dead webhook.post` shows the dead letters, and `bide requeue webhook.post --all` tries them again.
@queue.task("webhook.post", max_attempts=len(LADDER) + 1, backoff=steps(*LADDER), timeout="30s", on_dead=tell)
def post(url: str, order: int) -> None:
    # The id is the same in each attempt, so the receiver can tell a repetition from a new call.
    request = Request(url, b'{"paid": %d}' % order, {"Idempotency-Key": current().id})
    try:
        urlopen(request, timeout=10).close()
    except HTTPError as error:
        if error.code < 500 and error.code != 429:
            raise Bury(f"{url} says {error}") from error  # it will not say anything else in a minute
        raise
    print(f"webhook for order {order} is delivered")


if __name__ == "__main__":
    post.send("http://127.0.0.1:9/nobody-listens-here", 1)
