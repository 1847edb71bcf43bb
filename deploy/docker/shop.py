"""The application of the example: `docker compose up`, then `docker compose exec worker python shop.py` sends some messages."""

import os
import random

from bide import AsyncQueue, Queue

queue = AsyncQueue(os.environ.get("BIDE_URL", "sqlite:///shop.db"))


@queue.task("order.cancel", max_attempts=5)
async def cancel_unpaid(order: int) -> None:
    print(f"order {order} was not paid: cancelled", flush=True)


def main() -> None:
    with Queue(os.environ.get("BIDE_URL", "sqlite:///shop.db")) as sender:
        for order in range(1_000):
            sender.send("order.cancel", {"order": order}, key=f"order:{order}", delay=random.uniform(1, 900))
        print(
            f"{sender.stats('order.cancel').pending:,} orders will be cancelled in the next 15 minutes, unless they are paid."
        )


if __name__ == "__main__":
    main()
