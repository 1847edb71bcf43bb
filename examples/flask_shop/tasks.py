"""What happens later: the queue, and the functions that its messages are for. `bide worker` calls them, in threads."""

import os
import random

from bide import Queue, exponential

from . import shop

PAY_WITHIN = os.environ.get("SHOP_PAY_WITHIN", "15m")
REMIND_AFTER = os.environ.get("SHOP_REMIND_AFTER", "10m")
MAIL_FAILS = float(os.environ.get("SHOP_MAIL_FAILS", "0.3"))  # the part of all attempts; real mail servers do it unasked

# The shop's own file, so that an order and the messages about it can be committed together.
queue = Queue(f"sqlite:///{shop.PATH}")

# Topics are written out, since messages that are under way keep theirs when a function is renamed or moved.


@queue.task("order.cancel", max_attempts=10)
def cancel_unpaid(order: int) -> None:
    """Due when the time to pay is over. Delivered at least once, so it looks whether there is still something to do."""
    with shop.transaction() as db:
        # The change and the mail about it are one transaction: should this process be killed, both have happened or
        # neither. When the message comes a second time, or the payment came first, the order is not open any more.
        if shop.cancel(db, order):
            send_mail.options(connection=db).send(order, "cancelled")


@queue.task("order.remind")
def remind(order: int) -> None:
    with shop.transaction() as db:
        # The order is looked up now, not when the message was sent: ten minutes are a long time.
        found = shop.find(db, order)
        if found is not None and found.state == "open":
            send_mail.options(key=f"{order}:reminder", connection=db).send(order, "reminder")


# Mail has a task of its own: when the server is down, it is only the mail that is tried again. After the last attempt the
# message is a dead letter: `bide dead mail` shows it, `bide requeue mail --all` gives it a new life.
@queue.task("mail", max_attempts=8, backoff=exponential("1s", cap="5m"))
def send_mail(order: int, about: str) -> None:
    if random.random() < MAIL_FAILS:
        raise ConnectionError("The mail server does not answer.")
    shop.post(order, about)
