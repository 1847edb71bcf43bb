"""Which calls of a client tell others of a topic, before they are committed or afterwards."""

import random

from bide.engines.postgres.recent import AGAIN, IN_TIME, QUIET, Notices, look_again


def test_a_call_that_ends_soon_after_one_that_has_told_tells_nobody() -> None:
    telling = Notices()
    assert telling.quiet(["a"], 10.0) == []
    telling.told(["a"], 10.0)
    assert telling.quiet(["a", "b"], 10.0 + QUIET / 2) == ["a"]
    assert telling.untold(["a"], 10.0 + IN_TIME) == []
    assert telling.quiet(["a"], 10.0 + QUIET) == []


def test_a_call_that_ends_too_late_for_the_second_look_tells_afterwards() -> None:
    telling = Notices()
    telling.quiet(["a"], 10.0)
    telling.told(["a"], 10.0)
    assert telling.quiet(["a"], 10.0 + QUIET / 2) == ["a"]
    assert telling.untold(["a"], 10.0 + IN_TIME * 1.01) == ["a"]
    assert telling.quiet(["a"], 10.0 + IN_TIME * 1.02) == ["a"]  # what is told afterwards counts, too


def test_a_call_that_failed_has_told_nobody() -> None:
    telling = Notices()
    telling.quiet(["a"], 10.0)
    assert telling.quiet(["a"], 10.0 + QUIET / 4) == ["a"]
    assert telling.untold(["a"], 10.0 + QUIET / 2) == ["a"]


class Client:
    """Makes calls of which some fail. One that tells is committed, and heard of, at any instant of it."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._telling = Notices()
        self._calls: list[tuple[float, float, list[str]]] = []  # end, beginning, quiet
        self.heard: list[float] = []
        self.committed: list[float] = []  # by calls that did not tell

    def begin(self, now: float) -> None:
        took = self._draw.choice([0.001, 0.005, 0.03, 0.069, 0.071, 0.1])
        self._calls.append((now + took, now, self._telling.quiet(["a"], now)))

    def end(self, until: float) -> None:
        """All calls that end by then."""
        for each in sorted(call for call in self._calls if call[0] <= until):
            self._calls.remove(each)
            ended, began, quiet = each
            if self._draw.random() < 0.1:
                continue
            if not quiet:
                self.heard.append(self._draw.uniform(began, ended))
                self._telling.told(["a"], began)
            else:
                self.committed.append(ended)
                if self._telling.untold(quiet, ended):
                    self.heard.append(ended)
                    self._telling.told(quiet, ended)


def test_whatever_calls_take_a_receiver_looks_after_each_of_them() -> None:
    draw = random.Random(7)
    for _ in range(2_000):
        client, now = Client(draw), 100.0
        for _ in range(12):
            now += draw.choice([0.0, 0.001, 0.01, 0.03])
            client.end(now)
            client.begin(now)
        client.end(now + 1)
        looks = [each + after for each in client.heard for after in (0.0, *AGAIN)]
        assert all(any(at <= look <= at + AGAIN[-1] for look in looks) for at in client.committed)


def test_a_receiver_looks_twice_more() -> None:
    assert look_again(10.0, 9.0) == 10.0 + AGAIN[0]
    assert look_again(10.0, 10.0 + AGAIN[0]) == 10.0 + AGAIN[1]
    assert look_again(10.0, 10.0 + AGAIN[1]) is None
