"""The user's API: queues in two colours over whatever engine the URL names."""

from bide.queue.deliveries.aio import AsyncDelivery
from bide.queue.deliveries.sync import Delivery
from bide.queue.hooks import Call, Hook
from bide.queue.travel import Handled
from bide.queue.twins import AsyncQueue, Queue

__all__ = ["AsyncDelivery", "AsyncQueue", "Call", "Delivery", "Handled", "Hook", "Queue"]
