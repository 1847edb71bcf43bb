"""The new consumer: receives from a queue of bide, records, acks."""

import sys

from bide import Queue
from tests.adopt.programs.recording import record

url, topic = sys.argv[1:]
with Queue(url) as queue:
    while True:
        taken = queue.receive(topic, limit=500, lease="60s", wait="5s")
        record((each.body["n"], each.body["due"]) for each in taken)
        queue.ack_many(taken)
