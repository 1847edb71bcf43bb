"""What happens later: the queue, and the functions that its messages are for."""

import asyncio
import os
import random

from bide import AsyncQueue, exponential

from . import shop

PAY_WITHIN = os.environ.get("SHOP_PAY_WITHIN", "15m")
REMIND_AFTER = os.environ.get("SHOP_REMIND_AFTER", "10m")
MAIL_FAILS = float(os.environ.get("SHOP_MAIL_FAILS", "0.3"))  # the part of all attempts; real mail servers do it unasked

# No URL here: it is $BIDE_URL, else the SQLite file bide.db in the current folder.
queue = AsyncQueue()

# Topics are written out, since messages that are under way keep theirs when a function is renamed or moved.


@queue.task("order.cancel", max_attempts=10)
async def cancel_unpaid(order: str) -> None:
    """Due when the time to pay is over. Delivered at least once, so each step may be taken twice."""
    found = await asyncio.to_thread(shop.cancel, order)
    # None: the request that sent this message died before it wrote the order. Paid: the payment came first.
    # Cancelled, maybe by an earlier attempt that died before its mail: so the mail hangs on the state, not on the change.
    if found is not None and found.state == "cancelled":
        await send_mail.options(key=f"{order}:cancelled").send(order, "cancelled")


@queue.task("order.remind")
async def remind(order: str) -> None:
    # The order is looked up now, not when the message was sent: ten minutes are a long time.
    found = await asyncio.to_thread(shop.find, order)
    if found is not None and found.state == "open":
        await send_mail.options(key=f"{order}:reminder").send(order, "reminder")


# Mail has a task of its own: when the server is down, it is only the mail that is tried again. After the last attempt the
# message is a dead letter: `bide dead mail` shows it, `bide requeue mail --all` gives it a new life.
@queue.task("mail", max_attempts=8, backoff=exponential("1s", cap="5m"), timeout="10s")
async def send_mail(order: str, about: str) -> None:
    if random.random() < MAIL_FAILS:
        raise ConnectionError("The mail server does not answer.")
    await asyncio.to_thread(shop.post, order, about)
