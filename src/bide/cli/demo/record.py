"""What was seen in a run, and nothing else: the tally is made from these facts."""

from typing import NamedTuple

from bide import AsyncDelivery, CancelResult, Sent


class Handing(NamedTuple):
    """A delivery, as a worker got it. Times are milliseconds of the engine's clock."""

    id: str
    worker: str
    attempt: int
    due: int
    at: int

    @property
    def lateness(self) -> int:
        return self.at - self.due


class Record:
    def __init__(self) -> None:
        self.promised: dict[str, int] = {}  # what send accepted, with the due time it answered
        self.moved: dict[str, int] = {}  # the due time that a reschedule led to
        self.cancelled: dict[str, int] = {}  # with how many handings there had been
        self.handings: list[Handing] = []
        self.acked: list[tuple[str, str]] = []  # id, worker; of acks that were accepted
        self.failed: list[str] = []  # of work that ended in an exception
        self.held: list[tuple[str, str]] = []  # id, worker; in the hands of a worker when it stopped
        self.stopped: int | None = None  # how many handings there had been by then
        self.stale_refused: int = 0  # acks that came when their message was in other hands
        self.stale_accepted: int = 0
        self.left: int | None = None  # what the engine still held in the end

    def sent(self, sent: Sent) -> None:
        self.promised[sent.id] = sent.due

    def cancel(self, sent: Sent, result: CancelResult) -> None:
        if result is CancelResult.CANCELLED:
            self.cancelled[sent.id] = len(self.handings)

    def handed(self, delivery: AsyncDelivery, worker: str) -> None:
        at = delivery.due + round(delivery.lateness * 1000)
        self.handings.append(Handing(delivery.id, worker, delivery.attempt, delivery.due, at))

    def ack(self, delivery: AsyncDelivery, worker: str) -> None:
        self.acked.append((delivery.id, worker))

    def stop(self, held: list[str], worker: str) -> None:
        self.held += [(each, worker) for each in held]
        self.stopped = len(self.handings)

    @property
    def open(self) -> set[str]:
        """Messages that have not ended."""
        return self.promised.keys() - self.cancelled.keys() - {each for each, _ in self.acked}

    @property
    def came_back(self) -> bool:
        """Whether all that the stopped worker held is in other hands by now."""
        since = {handing.id for handing in self.handings[self.stopped or 0 :]}
        return self.stopped is not None and all(each in since for each, _ in self.held)
