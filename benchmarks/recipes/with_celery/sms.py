"""An SMS gateway takes 100 messages a minute. The limit is of each worker process, so there may be only one."""

import os
from typing import Any

from benchmarks.recipes.with_celery.app import app

RATE = os.environ.get("SMS_RATE", "100/m")
app.conf.broker_transport_options = {"queue_order_strategy": "priority"}


@app.task(name="sms.send", bind=True, rate_limit=RATE, soft_time_limit=10)
def send_sms(self: Any, number: str, text: str) -> None:
    gateway(self.request.id, number, text)


def send_code(number: str, code: str) -> None:
    send_sms.apply_async([number, f"Your code is {code}"], priority=0, expires=300)


def gateway(reference: str, number: str, text: str) -> None:
    print(f"{number}: {text}")


if __name__ == "__main__":
    for each in range(3):
        send_sms.apply_async([str(each), "Everything must go!"], priority=6)
    send_code("3", "271828")
