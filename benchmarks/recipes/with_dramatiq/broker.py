"""What all recipes of Dramatiq share. These lines are not counted."""

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import CurrentMessage

from benchmarks.recipes.shop import REDIS

broker = RedisBroker(url=REDIS)
broker.add_middleware(CurrentMessage())
dramatiq.set_broker(broker)
