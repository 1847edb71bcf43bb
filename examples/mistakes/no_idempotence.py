"""The job comes back after a crash, as it must. The work was done already, and is done again."""

import os
import signal
from multiprocessing import Process
from typing import Any

import redis

db: Any = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://localhost:6379/0"), decode_responses=True)


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def work(is_killed: bool) -> None:
    job = db.lmove("ready", "running", "LEFT", "RIGHT")  # it is kept until it is done
    db.decrby("balance", 10)  # the work: charge the customer 10
    if is_killed:
        killed()
    db.lrem("running", 1, job)


if __name__ == "__main__":
    db.delete("ready", "running")
    db.set("balance", 100)
    db.rpush("ready", "charge 10")
    worker = Process(target=work, args=(True,))
    worker.start()
    worker.join()
    db.lmove("running", "ready", "LEFT", "RIGHT")  # the recovery: what nobody has finished comes back
    work(False)
    print(f"1 charge of 10 sent, the balance went from 100 to {db.get('balance')}")
