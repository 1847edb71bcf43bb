"""Whether a Redis server is away, or only slow, as its connections find out."""

import itertools

import pytest

from bide.engines.redis.presence import HASTE, LATER, Presence


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1_000.0]
    monkeypatch.setattr("bide.engines.redis.presence.time.monotonic", lambda: now[0])
    return now


def test_a_server_that_is_away_is_asked_with_more_patience_each_time(clock: list[float]) -> None:
    presence = Presence(lambda: "server", 15.0)
    presence.lose()
    asked: list[tuple[float, float]] = []
    while len(asked) < 6:
        clock[0] += 0.01
        if presence.is_to_be_asked():
            asked.append((clock[0], presence.asks_for))
    patience = [seconds for _, seconds in asked]
    assert patience == sorted(patience)
    assert (patience[0], patience[-1]) == (HASTE, LATER)
    assert all(at + seconds < later for (at, seconds), (later, _) in itertools.pairwise(asked))  # one at a time


def test_one_that_is_found_to_be_slow_is_waited_for_as_long_as_it_takes(clock: list[float]) -> None:
    presence = Presence(lambda: "server", 15.0)
    presence.lose()
    presence.find(took=4.0)
    assert presence.patience(HASTE) > 4.0
    for _ in range(50):  # and no more when it is as quick as ever
        presence.ask("me")
        presence.answer("me")
    assert presence.patience(HASTE) == pytest.approx(HASTE, abs=0.01)
