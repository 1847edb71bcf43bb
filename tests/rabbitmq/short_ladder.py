"""A ladder of one step, for tests: whatever its delay, a message comes to its topic a moment later, and goes round while early.

The engine sends what comes early on into the ladder again, by its own time. So a test that moves this time moves all messages,
and its broker has 3 queues to declare in place of 60.
"""

from collections.abc import Iterator, Mapping

from bide.engines.rabbitmq.ladder import QUORUM, LadderStep, QueueNames

ROUND = LadderStep("round", "round", "round", 20)  # the longest that what is due is late, and how often what is not goes round


class ShortLadder(QueueNames):
    def exchanges(self) -> Iterator[tuple[str, str, Mapping[str, object]]]:
        yield self.lost, "fanout", {}
        yield self.enter, "topic", {}
        yield self.topics, "topic", {"alternate-exchange": self.lost}
        yield self.after(ROUND.digit), "topic", {"alternate-exchange": self.lost}

    def queues(self) -> Iterator[tuple[str, Mapping[str, object]]]:
        yield self.lost, QUORUM
        yield self.index, {"x-queue-type": "stream"}
        yield self.wait(ROUND), self.arguments(ROUND.ms, self.after(ROUND.digit))

    def bindings(self) -> Iterator[tuple[str, str, str]]:
        yield self.enter, "#", self.wait(ROUND)

    def arrivals(self) -> Iterator[tuple[str, str]]:
        yield self.after(ROUND.digit), "#"
