"""Which acknowledgements are sent: the broker here counts as RabbitMQ does, and refuses numbers that it does not hold."""

import random
from collections.abc import Iterable

from bide.engines.rabbitmq.aio import ends
from bide.engines.rabbitmq.aio.ends import Tags


class _Broker:
    def __init__(self, delivered: int) -> None:
        self.held = set(range(1, delivered + 1))

    def take(self, acknowledgements: Iterable[tuple[int, bool]]) -> int:
        """How many they were."""
        count = 0
        for tag, multiple in acknowledgements:
            assert tag in self.held, "the broker closes the channel: unknown delivery tag"
            self.held = {each for each in self.held if (each > tag if multiple else each != tag)}
            count += 1
        return count


def test_one_acknowledgement_stands_for_all_deliveries_up_to_it() -> None:
    broker, ours = _Broker(300), Tags()
    for first in (1, 101, 201):
        assert broker.take(ours.acknowledgements(range(first, first + 100))) == 1
    assert not broker.held


def test_deliveries_behind_one_that_is_not_acknowledged_are_acknowledged_one_by_one() -> None:
    broker, ours = _Broker(10), Tags()
    assert broker.take(ours.acknowledgements([1, 2, 4, 5, 6])) == 4
    assert broker.held == {3, 7, 8, 9, 10}
    assert broker.take(ours.acknowledgements([7, 3])) == 1
    assert broker.take(ours.acknowledgements([10, 8, 9])) == 1
    assert not broker.held


def test_only_what_was_asked_for_is_acknowledged_whatever_its_order() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        broker, ours = _Broker(60), Tags()
        unseen = set(chance.sample(sorted(broker.held), chance.choice((0, 0, 1, 5))))
        left = sorted(broker.held - unseen, key=lambda tag: tag + chance.random() * chance.choice((1, 10, 60)))
        while left:
            batch, left = left[: (size := chance.randint(1, 20))], left[size:]
            broker.take(ours.acknowledgements(batch))
            assert broker.held == unseen | set(left)


def test_numbers_beyond_a_missing_one_are_not_remembered_without_end() -> None:
    many = ends.MOST + 100
    broker, ours = _Broker(many + 1), Tags()
    assert broker.take(ours.acknowledgements(range(2, many))) == many - 2
    assert broker.take(ours.acknowledgements([1, many])) == 2
    assert broker.held == {many + 1}
