"""What is measured: each kind of work takes a peer and a stage, and gives its figures by name."""

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from benchmarks.peers.peer import Peer
from benchmarks.peers.running import Failed, Record, Run
from benchmarks.peers.servers import Stage

Figures: TypeAlias = Mapping[str, float]

SECONDS = 2.0  # of sending one by one
FAR = 3_600.0  # seconds
PATIENCE = 60.0  # seconds without a new record, until a peer is given up
SPREAD, OVER = 2_000, 20.0  # messages for lateness, and the seconds over which they are due
LEAD = 8.0  # seconds until the first of them is due
PENDING = 50_000  # messages, whose memory is measured
IDLE, SETTLED = 10.0, 30.0  # seconds
WAITING = 10_000  # messages that are pending in front of an idle worker
CRASH = 400  # messages, of 50 ms each
BEFORE = 0.4  # the share that is done when the worker is killed
RESTART = 0.3  # seconds until it is started again
TRIES = 10  # since a quick worker may be between two lots of messages
BACK = 90.0  # seconds that we wait for what it held


def single(peer: Peer, stage: Stage) -> Figures:
    """Messages sent one by one with a delay of an hour."""
    with Run(peer, stage, "single") as run:
        return {"a second": run.send("single", SECONDS)}


def batch(peer: Peer, stage: Stage) -> Figures:
    """Messages sent in batches, each with a time of its own in the hour after the next; and of bide also plain ones."""
    with Run(peer, stage, "batch") as run:
        figures = {"a second": run.send("spread", peer.sent, FAR, FAR)}
    if peer.home == "bide":
        with Run(peer, stage, "batch") as run:
            figures["plain"] = run.send("ready", peer.sent)
    return figures


def drain(peer: Peer, stage: Stage) -> Figures:
    """Messages that are due already, from the first to the last that a worker handles."""
    with Run(peer, stage, "drain") as run:
        run.send("ready", peer.many)
        run.start()
        _all(run, peer.many)
        times = [record.now for record in run.records()]
    return {"a second": (len(times) - 1) / (max(times) - min(times))}


def burst(peer: Peer, stage: Stage) -> Figures:
    """Messages that fall due at one instant, with the worker up: from this instant until the last is handled."""
    with Run(peer, stage, "burst") as run:
        run.start()
        run.send("spread", peer.many // 2, peer.lead, 0)
        sent = time.time()
        _all(run, peer.many // 2, peer.lead)
        records = run.records()
    due = records[0].due
    if sent > due:
        raise Failed(f"the burst was due before it was sent; it needs a longer lead than {peer.lead:.0f} s")
    return {"a second": len(records) / (max(record.now for record in records) - due)}


def lateness(peer: Peer, stage: Stage) -> Figures:
    """How long after their time messages are handled, a hundred a second; early ones are counted."""
    with Run(peer, stage, "lateness") as run:
        run.start()
        run.send("spread", SPREAD, LEAD, OVER)
        _all(run, SPREAD, LEAD + OVER)
        late = sorted(1000 * (record.now - record.due) for record in run.records())
    return {
        "p50 ms": late[len(late) // 2],
        "p99 ms": late[len(late) * 99 // 100],
        "highest ms": late[-1],
        "lowest ms": late[0],
        "early": float(sum(each < 0 for each in late)),
    }


def memory(peer: Peer, stage: Stage) -> Figures:
    """What a pending message takes of its server, with its payload of 100 bytes."""
    with Run(peer, stage, "memory") as run:
        run.send("spread", 1, FAR, FAR)  # scripts are loaded, and tables there
        before = stage.size(peer.server)
        run.send("spread", PENDING, FAR, FAR)
        return {"bytes": (stage.size(peer.server) - before) / PENDING}


def idle(peer: Peer, stage: Stage) -> Figures:
    """Commands that an idle worker has Redis run, with those inside scripts, while messages are pending."""
    with Run(peer, stage, "idle") as run:
        run.send("spread", WAITING, FAR, FAR)
        run.start()
        run.wait(lambda: False, SETTLED)
        before, begin = _calls(stage), time.monotonic()
        run.wait(lambda: False, IDLE)
        after, seconds = _calls(stage), time.monotonic() - begin
    return {"commands a second": (after - before - 1) / seconds}  # one was our own


def crash(peer: Peer, stage: Stage) -> Figures:
    """A busy worker is killed, and another one started: what is lost, what is done twice, and when the last is back."""
    for _ in range(TRIES):
        figures = _crash(peer, stage)
        if figures["held"]:
            return figures
    raise Failed(f"in {TRIES} tries it held no message when it was killed")


def _crash(peer: Peer, stage: Stage) -> Figures:
    def some_done() -> bool:
        done, started = _numbers(run, "done"), _numbers(run, "started")
        # One that begins all at once may have done all before a look: it is tried again.
        return len(done) >= BEFORE * CRASH and (len(started) > len(done) or len(done) == CRASH)

    with Run(peer, stage, "crash", slow=True) as run:
        run.send("ready", CRASH)
        run.start()
        if not run.wait(some_done, PATIENCE, look=0.002):
            raise Failed(f"it had not done {BEFORE:.0%} of {CRASH} messages in {PATIENCE:.0f} s")
        run.kill()
        killed, before = time.time(), run.records()
        held = {each.number for each in before if each.what == "started"}
        held -= {each.number for each in before if each.what == "done"}
        time.sleep(RESTART)
        run.start()
        all_done = run.wait(lambda: len(_numbers(run, "done")) == CRASH, BACK)
        if all_done:
            run.wait(lambda: False, 2.0)  # so that a second time is seen
        records = run.records()
    return after_the_crash(records, held, killed)


def after_the_crash(records: list[Record], held: set[int], killed: float) -> Figures:
    """What came of a worker's death, where `held` are the messages whose handlers it ended."""
    done = [record for record in records if record.what == "done"]
    seen = {record.number for record in done}
    back = [record.now - killed for record in done if record.number in held]
    figures = {
        "held": float(len(held)),
        "not handled": float(CRASH - len(seen)),
        "held and not handled": float(len(held - seen)),
        "done twice": float(len(done) - len(seen)),
    }
    return figures | ({"back after s": max(back)} if back else {})


def _all(run: Run, many: int, after: float = 0.0) -> None:
    """Waits for all, as long as there are new ones."""
    run.wait(lambda: run.lines() > 0, after + PATIENCE)
    seen = 0
    while (lines := run.lines()) < many:
        if lines == seen:
            raise Failed(f"only {lines:,} of {many:,} messages were handled")
        seen = lines
        run.wait(lambda: run.lines() >= many, PATIENCE)


def _numbers(run: Run, what: str) -> set[int]:
    return {record.number for record in run.records() if record.what == what}


def _calls(stage: Stage) -> int:
    return sum(int(numbers["calls"]) for numbers in stage.redis.commandstats().values())


class Work(NamedTuple):
    measure: Callable[[Peer, Stage], Figures]
    rounds: int
    beside: bool = False
    """Whether bide takes turns with each peer, so that each round gives a ratio."""
    suits: Callable[[Peer], bool] = lambda _: True
    """Whether a peer can be measured like this."""
    at_once: int = 1
    """How many peers are measured at the same time: more than one where they hardly use the processor."""


def _on_redis(peer: Peer) -> bool:
    return peer.server == "redis"


def _is_measured(peer: Peer) -> bool:
    """Whether its server tells how much it holds."""
    return peer.server in ("redis", "postgresql")


WORKS = {
    "single": Work(single, 5, beside=True),
    "batch": Work(batch, 5, beside=True, suits=lambda peer: bool(peer.batch)),
    "drain": Work(drain, 5, beside=True),
    "burst": Work(burst, 5, beside=True),
    "lateness": Work(lateness, 5, at_once=2),
    "memory": Work(memory, 2, suits=_is_measured, at_once=4),
    "idle": Work(idle, 3, suits=_on_redis, at_once=6),
    "crash": Work(crash, 1, at_once=6),
}
