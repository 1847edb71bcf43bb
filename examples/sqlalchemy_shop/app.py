"""The shop over HTTP. Run it with: uvicorn examples.sqlalchemy_shop.app:app"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import Body, FastAPI, HTTPException

from . import shop
from .tasks import pack, queue


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    await shop.prepare()
    async with queue:
        yield
    await shop.engine.dispose()


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=201)
async def create(email: str = Body(), card: str = Body()) -> dict[str, Any]:
    # The order and its message are one transaction: there is never an order that nobody packs, or a parcel without an order.
    async with shop.sessions.begin() as session:
        order = shop.Order(email=email)
        session.add(order)
        await session.flush()  # it has a number now
        await pack.options(connection=session).send(order.id)
        if card == "refused":
            raise HTTPException(402, f"The card was refused. Order {order.id} is rolled back, and its message with it.")
    return {"order": order.id}


@app.get("/orders/{order}")
async def show(order: int) -> dict[str, Any]:
    async with shop.sessions() as session:
        found = await session.get(shop.Order, order)
    if found is None:
        raise HTTPException(404, "There is no such order.")
    return {"order": found.id, "packed": found.packed}
