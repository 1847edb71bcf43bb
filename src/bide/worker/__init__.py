"""The worker: takes messages that are due, calls the tasks they are for, and tells the engine how it went."""

from bide.queue.run.call import Middleware
from bide.worker.claim_log import Health
from bide.worker.worker import Worker

__all__ = ["Health", "Middleware", "Worker"]
