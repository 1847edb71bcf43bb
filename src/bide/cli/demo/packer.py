"""Worker 1, a process of its own: it takes some parcels, prints them, and is killed while it packs.

Run as `python -m bide.cli.demo.packer URL HISTORY`.
"""

import json
import sys
import time

from bide import Queue
from bide.cli.demo.plan import WORKER_1
from bide.prove import History, Recorded

LIMIT = 4  # parcels at once


def main(url: str, history: str) -> None:
    with Queue(url) as queue:
        held = Recorded(queue, History(history, WORKER_1)).receive("order.pack", limit=LIMIT, wait="15s", lease="1.5s")
        print(json.dumps([[each.plain.body["body"]["order"], each.plain.id, each.plain.token] for each in held]), flush=True)
        time.sleep(60)


if __name__ == "__main__":
    main(*sys.argv[1:])
