"""The queue and its tasks. `bide worker` runs them in threads."""

import os
import random

from bide import Queue, exponential

from . import shop

PAY_WITHIN = os.environ.get("SHOP_PAY_WITHIN", "15m")
REMIND_AFTER = os.environ.get("SHOP_REMIND_AFTER", "10m")
MAIL_FAILS = float(os.environ.get("SHOP_MAIL_FAILS", "0.3"))  # the share of attempts that fail, to show retries

# Messages are in the shop's own file, so that an order and its messages are committed together.
queue = Queue(f"sqlite:///{shop.PATH}")

# Each task names its topic, so that waiting messages still find it when the function is renamed or moved.


@queue.task("order.cancel", max_attempts=10)
def cancel_unpaid(order: int) -> None:
    """Runs when the time to pay is over. The message may be delivered twice, so check the order's state."""
    with shop.transaction() as db:
        # The new state and the mail are one transaction: if this process is killed, both are stored or neither. If the
        # message comes twice, or the payment came first, the order is not open any more, and nothing happens.
        if shop.cancel(db, order):
            send_mail.options(connection=db).send(order, "cancelled")


@queue.task("order.remind")
def remind(order: int) -> None:
    with shop.transaction() as db:
        # Read the order now: it may have changed since the message was sent.
        found = shop.find(db, order)
        if found is not None and found.state == "open":
            send_mail.options(key=f"{order}:reminder", connection=db).send(order, "reminder")


# Mail is its own task, so if the mail server is down, only the mail is retried. After its last attempt, the message becomes
# a dead letter: `bide dead mail` shows it, and `bide requeue mail --all` schedules it again.
@queue.task("mail", max_attempts=8, backoff=exponential("1s", cap="5m"))
def send_mail(order: int, about: str) -> None:
    if random.random() < MAIL_FAILS:
        raise ConnectionError("The mail server does not answer.")
    shop.post(order, about)
