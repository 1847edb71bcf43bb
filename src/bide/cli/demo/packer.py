"""Worker 1, a process of its own: takes some parcels, says which, and packs for ever; it is killed before it is done.

Run as `python -m bide.cli.demo.packer URL`.
"""

import json
import sys
import time

from bide import Queue

LEASE = "1.5s"
HANDS = 4  # parcels that it takes at once


def main() -> None:
    with Queue(sys.argv[1]) as queue:
        held = queue.receive("order.pack", limit=HANDS, wait="15s", lease=LEASE)
        taken = [
            {
                "id": each.id,
                "token": each.token,
                "attempt": each.attempt,
                "due": each.due,
                "at": each.due + round(each.lateness * 1000),
                "order": each.body["order"],
            }
            for each in held
        ]
        print(json.dumps(taken), flush=True)
        time.sleep(60)


if __name__ == "__main__":
    main()
