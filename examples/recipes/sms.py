"""An SMS gateway takes 100 messages a minute: from all workers together, no more are sent."""

import os

from bide import Queue, current
from examples.recipes.database import URL

queue = Queue(URL)
RATE = os.environ.get("SMS_RATE", "100/m")


@queue.task("sms.send", rate=RATE, timeout="10s")
def send_sms(number: str, text: str) -> None:
    gateway(current().id, number, text)


def send_code(number: str, code: str) -> None:
    """A login code is no use after 5 minutes, and goes before advertising."""
    send_sms.options(priority="high", expires_in="5m").send(number, f"Your code is {code}")


def gateway(reference: str, number: str, text: str) -> None:
    """Stands in for the gateway. It sends the same reference once, so an attempt that is repeated does no harm."""
    print(f"{number}: {text}")


if __name__ == "__main__":
    send_sms.send_many({"number": str(number), "text": "Everything must go!"} for number in range(3))
    send_code("3", "271828")
