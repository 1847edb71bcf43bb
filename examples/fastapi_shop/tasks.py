"""The queue and its tasks."""

import asyncio
import os
import random

from bide import AsyncQueue, exponential

from . import shop

PAY_WITHIN = os.environ.get("SHOP_PAY_WITHIN", "15m")
REMIND_AFTER = os.environ.get("SHOP_REMIND_AFTER", "10m")
MAIL_FAILS = float(os.environ.get("SHOP_MAIL_FAILS", "0.3"))  # the share of attempts that fail, to show retries

# Without a URL, the queue is $BIDE_URL, or else the SQLite file bide.db in the current folder.
queue = AsyncQueue()

# Each task names its topic, so that waiting messages still find it when the function is renamed or moved.


@queue.task("order.cancel", max_attempts=10)
async def cancel_unpaid(order: str) -> None:
    """Runs when the time to pay is over. The message may be delivered twice, so each step is safe to repeat."""
    found = await asyncio.to_thread(shop.cancel, order)
    # None: the process that sent this message died before it wrote the order. Paid: the payment came first.
    # Cancelled: perhaps by an earlier attempt that died before its mail. So the mail depends on the state, not on the change.
    if found is not None and found.state == "cancelled":
        await send_mail.options(key=f"{order}:cancelled").send(order, "cancelled")


@queue.task("order.remind")
async def remind(order: str) -> None:
    # Read the order now: it may have changed since the message was sent.
    found = await asyncio.to_thread(shop.find, order)
    if found is not None and found.state == "open":
        await send_mail.options(key=f"{order}:reminder").send(order, "reminder")


# Mail is its own task, so if the mail server is down, only the mail is retried. After its last attempt, the message becomes
# a dead letter: `bide dead mail` shows it, and `bide requeue mail --all` schedules it again.
@queue.task("mail", max_attempts=8, backoff=exponential("1s", cap="5m"), timeout="10s")
async def send_mail(order: str, about: str) -> None:
    if random.random() < MAIL_FAILS:
        raise ConnectionError("The mail server does not answer.")
    await asyncio.to_thread(shop.post, order, about)
