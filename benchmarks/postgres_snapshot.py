"""What an old snapshot costs: a REPEATABLE READ transaction that is held open elsewhere, while 500 messages a second pass.

As long as it is open, PostgreSQL keeps the rows of all messages that ended, and their entries in indexes.
`python -m benchmarks.postgres_snapshot --minutes 10` prints how long claims took in each minute.
"""

import argparse
import asyncio
import logging
import time
from dataclasses import dataclass, field

from benchmarks.costs import body, load
from benchmarks.measure import HEADER, Figure, figure
from benchmarks.postgres_meter import Meter
from bide import AsyncQueue, Worker
from bide.engines.guard.hooks import Call, Hook
from tests.servers.postgres import PostgresServer

BODY = body()
RATE = 500  # messages a second
STEP = 0.01  # seconds between two sends
MINUTES = 2.0  # with the transaction
QUIET = 60.0  # seconds without it, before
WARM = 5.0  # seconds that are not counted


@dataclass
class Minute:
    """What was measured in one."""

    claims: list[float] = field(default_factory=list)  # ms each
    handled: int = 0
    seconds: float = 0.0

    def late(self, share: float) -> float:
        return sorted(self.claims)[int(len(self.claims) * share)]


class Timed(Hook):
    """A hook that notes how long each claim took."""

    def __init__(self) -> None:
        self.minute = Minute()

    def after(self, call: Call) -> None:
        if call.verb == "claim":
            self.minute.claims.append(call.seconds * 1_000)


class Warned(logging.Handler):
    """Notes when the engine warned first."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.at: float | None = None
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        if self.at is None and "transaction" in record.getMessage():
            self.at, self.text = time.monotonic(), record.getMessage()


def run(minutes: float = MINUTES) -> list[Figure]:
    with PostgresServer(fsync=True) as server:
        return asyncio.run(_measure(server, minutes))


async def _measure(server: PostgresServer, minutes: float) -> list[Figure]:
    meter, timed, warned = Meter(server), Timed(), Warned()
    url = meter.fresh()
    logging.getLogger("bide.postgres").addHandler(warned)
    queue = AsyncQueue(url, hooks=[timed])

    @queue.task("t")
    async def handle(order: int, customer: str, note: str) -> None:
        timed.minute.handled += 1

    async def feed() -> None:
        begin, sent = time.monotonic(), 0
        while True:
            due = int((time.monotonic() - begin) * RATE) - sent
            if due:
                await queue.send_many("t", [BODY] * due)
                sent += due
            await asyncio.sleep(STEP)

    async def watch(seconds: float) -> Minute:
        timed.minute, begin = Minute(), time.monotonic()
        await asyncio.sleep(seconds)
        timed.minute.seconds = time.monotonic() - begin
        return timed.minute

    async with queue, Worker(queue, grace=0):
        feeding = asyncio.create_task(feed())
        await watch(WARM)
        quiet = await watch(QUIET)
        with server.client(url.rpartition("/")[2], application_name="report", autocommit=False) as other:
            other.execute("set transaction isolation level repeatable read")
            other.execute("select count(*) from bide.message")
            begin, held = time.monotonic(), []
            while (left := begin + 60 * minutes - time.monotonic()) > 1:
                held.append(await watch(min(60.0, left)))
        feeding.cancel()
    return [*_figures(quiet, held), *_warning(warned, begin), load()]


def _figures(quiet: Minute, held: list[Minute]) -> list[Figure]:
    lines = []
    for name, these in (("without", [quiet]), ("with", held)):
        lines += [
            figure(f"claim {name} the transaction, {what}", "ms", [each.late(share) for each in these])
            for what, share in (("p50", 0.5), ("p99", 0.99), ("longest", 0.99999))
        ]
        lines.append(figure(f"… handled {name} it", "a second", [each.handled / each.seconds for each in these]))
    every = [took for each in held for took in each.claims]
    last = held[-1]
    return [
        *lines,
        figure("p99 of all claims with it, to those without", "times", [Minute(every).late(0.99) / quiet.late(0.99)], "<= 5"),
        figure("… of those in its last minute", "times", [last.late(0.99) / quiet.late(0.99)]),
        figure(
            "handled in its last minute", "%", [100 * last.handled / last.seconds / (quiet.handled / quiet.seconds)], ">= 50"
        ),
    ]


def _warning(warned: Warned, begin: float) -> list[Figure]:
    if warned.at is None:
        print("There was no warning.", flush=True)
        return []
    print(f"The engine's warning: {warned.text}", flush=True)
    return [figure("until bide warned", "s", [warned.at - begin], "<= 60")]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.postgres_snapshot", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=MINUTES, help=f"that the transaction is held open; {MINUTES:g} by default"
    )
    print(HEADER)
    print("\n".join(each.line() for each in run(parser.parse_args().minutes)))


if __name__ == "__main__":
    main()
