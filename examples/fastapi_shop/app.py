"""The shop over HTTP. Run it with: uvicorn examples.fastapi_shop.app:app"""

import asyncio
import logging
import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from datetime import datetime

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from bide import RescheduleResult, Worker

from . import shop
from .tasks import PAY_WITHIN, REMIND_AFTER, cancel_unpaid, queue, remind, send_mail

logging.basicConfig(level=logging.INFO)  # uvicorn configures its own loggers only; this shows failed tasks, too

# The worker runs in this process, unless SHOP_WORKER=apart. Then run it in another terminal:
# bide worker examples.fastapi_shop.tasks:queue
WORKER_HERE = os.environ.get("SHOP_WORKER", "here") == "here"


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    await asyncio.to_thread(shop.prepare)
    # At the end, the worker stops first, then the queue is closed.
    async with queue, Worker(queue) if WORKER_HERE else nullcontext():
        yield


app = FastAPI(title="Order shop", lifespan=lifespan)


class NewOrder(BaseModel):
    email: str


class Told(BaseModel):
    order: str
    state: shop.State
    pay_by: datetime | None = None
    mails: list[str] = []
    cancellation: str | None = None
    reminder: str | None = None


@app.post("/orders", status_code=201)
async def create(new: NewOrder) -> Told:
    order = uuid.uuid4().hex
    # Send the messages first, then write the order. If this process dies in between, the cancellation finds no order and
    # does nothing. In the other sequence, there could be an order that is never cancelled.
    sent = await cancel_unpaid.after(PAY_WITHIN, key=order).send(order)
    await remind.after(REMIND_AFTER, key=order).send(order)
    await asyncio.to_thread(shop.add, order, new.email)
    return Told(order=order, state="open", pay_by=sent.due_at)


@app.get("/orders/{order}")
async def show(order: str) -> Told:
    found = _there(await asyncio.to_thread(shop.find, order))
    waiting = await cancel_unpaid.get(key=order)
    return Told(
        order=order,
        state=found.state,
        pay_by=waiting.due_at if waiting and found.state == "open" else None,
        mails=await asyncio.to_thread(shop.mails, order),
    )


@app.post("/orders/{order}/pay")
async def pay(order: str) -> Told:
    # The order's row decides, not the queue. If this process dies after this line, the order stays paid, because the
    # cancellation checks the order. Paying again is safe, and does the remaining steps.
    found = _there(await asyncio.to_thread(shop.pay, order))
    if found.state == "cancelled":
        raise HTTPException(409, "Too late: the order was cancelled, as it was not paid in time. You are not charged.")
    # CANCELLED: paid in time. RUNNING: the cancellation runs now, and will see that the order is paid.
    # GONE: there is no cancellation any more, for example because the order is paid twice.
    cancellation = await cancel_unpaid.cancel(key=order)
    reminder = await remind.cancel(key=order)
    await send_mail.options(key=f"{order}:receipt").send(order, "receipt")
    return Told(order=order, state="paid", cancellation=cancellation.value, reminder=reminder.value)


@app.post("/orders/{order}/more-time")
async def more_time(order: str) -> Told:
    found = _there(await asyncio.to_thread(shop.find, order))
    moved = await cancel_unpaid.reschedule(key=order, delay=PAY_WITHIN)
    if moved is RescheduleResult.RUNNING:
        raise HTTPException(409, "Too late: the order is being cancelled at this moment.")
    if moved is RescheduleResult.GONE:
        raise HTTPException(409, f"There is nothing to put off: the order is {found.state}.")
    reminder = await remind.reschedule(key=order, delay=REMIND_AFTER)  # GONE: the reminder was sent already
    return (await show(order)).model_copy(update={"cancellation": moved.value, "reminder": reminder.value})


def _there(order: shop.Order | None) -> shop.Order:
    if order is None:
        raise HTTPException(404, "There is no such order.")
    return order
