"""beanstalkd, by greenstalk. Its delays are whole seconds, which this rounds up; batches are the protocol's, on one socket."""

import math
import socket
import sys
import time
from collections.abc import Sequence

import greenstalk
from workload import URL, Item, handle, main, parts

host, _, port = URL.partition(":")
ADDRESS = (host, int(port))
PRIORITY, RUN = 65_536, 60  # greenstalk's own


def _delay(due: float | None) -> int:
    return 0 if due is None else max(0, math.ceil(due - time.time()))


def send_many(items: Sequence[Item]) -> None:
    with socket.create_connection(ADDRESS) as line, line.makefile("rb") as answers:
        for part in parts(items):
            puts = []
            for payload, due in part:
                body = payload.encode()
                puts.append(b"put %d %d %d %d\r\n%s\r\n" % (PRIORITY, _delay(due), RUN, len(body), body))
            line.sendall(b"".join(puts))
            for _ in part:
                answer = answers.readline()
                assert answer.startswith(b"INSERTED"), answer


def work(client: greenstalk.Client) -> None:
    while True:
        job = client.reserve()
        handle(job.body)
        client.delete(job)


if __name__ == "__main__":
    with greenstalk.Client(ADDRESS) as client:
        if sys.argv[1] == "send":
            main(lambda payload, due: client.put(payload, delay=_delay(due)), send_many)
        else:
            work(client)
