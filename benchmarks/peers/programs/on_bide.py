"""bide: a task, sent by the sync queue; the worker is `bide worker on_bide:queue`."""

import time
from datetime import UTC, datetime
from typing import Any

from workload import URL, WORK, Item, handle_in_loop, main

from bide import Outgoing, Queue

queue = Queue(URL)


@queue.task("work")
async def work(payload: str) -> None:
    await handle_in_loop(payload)


def send(payload: str, due: float | None) -> None:
    queue.send("work", {"payload": payload}, **_due(due))


def send_many(items: list[Item]) -> None:
    if items[0][1] is None:
        queue.send_many("work", [{"payload": payload} for payload, _ in items])
    else:
        queue.send_many("work", [Outgoing({"payload": payload}, **_due(due)) for payload, due in items])


def _due(due: float | None) -> dict[str, Any]:
    if due is None:
        return {}
    if WORK in ("burst", "lateness"):  # to the instant
        return {"at": datetime.fromtimestamp(due, UTC)}
    return {"delay": due - time.time()}


if __name__ == "__main__":
    with queue:
        main(send, send_many)
