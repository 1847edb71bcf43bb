"""The day in the shop, planned from a number: who orders what, when, and what they do about the bill. Pure."""

import random
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

Behaviour: TypeAlias = Literal["pays", "forgets", "pays late", "asks for time"]

ITEMS = (
    "tea pot", "lamp", "two chairs", "a globe", "umbrella", "wall clock", "blanket",
    "ink and pen", "kettle", "sundial", "bookend", "candles", "hourglass", "door bell",
)  # fmt: skip
WORKER_1 = "worker 1"  # the one that is killed, as its history calls it
FIRST = 41
EVERY = 0.45  # seconds from one order to the next
CARTS = 400
PACKING = 6.4  # seconds after opening: what is paid by then is packed together
PLEA = 2.0  # seconds that a customer who asks for time is given from then on

# Enough of the early customers pay in time that there are parcels in the hands of the worker that stops.
EARLY: tuple[Behaviour, ...] = ("pays", "pays", "pays", "pays", "forgets", "asks for time")
LATER: tuple[Behaviour, ...] = ("pays", "pays", "pays late", "forgets", "forgets", "forgets", "forgets", "forgets")


class Customer(NamedTuple):
    """All times are seconds: `arrives` after opening, the others after the order."""

    order: int
    item: str
    arrives: float
    window: float  # to pay in
    behaviour: Behaviour
    acts: float  # pays, or asks for time


class DemoPlan(NamedTuple):
    customers: Sequence[Customer]
    carts: Sequence[float]  # each visitor's cart is forgotten after so many seconds
    refused: int  # the order whose receipt the mail server refuses twice


def plan(seed: int) -> DemoPlan:
    chance = random.Random(seed)
    behaviours = [*chance.sample(EARLY, len(EARLY)), *chance.sample(LATER, len(LATER))]
    items = chance.sample(ITEMS, len(ITEMS))
    customers = []
    for number, behaviour in enumerate(behaviours):
        window = chance.uniform(3.6, 5.0)
        acts = {
            "pays": chance.uniform(0.35, 0.7) * window,
            "forgets": 0.0,
            "pays late": window + 0.7,
            "asks for time": window - 0.8,
        }[behaviour]
        arrives = 0.5 + number * EVERY
        customers.append(Customer(FIRST + number, items[number], arrives, round(window, 1), behaviour, acts))
    refused = next(each.order for each in customers if each.behaviour == "pays")
    return DemoPlan(customers, [chance.uniform(0.5, 11.0) for _ in range(CARTS)], refused)
