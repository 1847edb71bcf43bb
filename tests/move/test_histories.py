"""Random histories of moves lose nothing, double nothing, and change nothing but what somebody has asked for."""

import pytest

from tests.model.turns import LONG
from tests.move.histories import History, played

MANY = 3_000 if LONG else 60
KINDS = [
    ("kill", "error"),
    ("kill", "error", "user"),
    ("two",),
    ("two", "user"),
    ("kill", "error", "user", "late"),
    ("kill", "error", "two", "user"),
    ("beside",),
    ("beside", "kill", "error", "user", "late"),
]


@pytest.mark.timeout(1_200 if LONG else 120)
@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
def test_a_history_of_moves_loses_and_doubles_nothing(kinds: tuple[str, ...]) -> None:
    for seed in range(MANY):
        history = played(seed, set(kinds))
        assert not history.faults, f"seed {seed}\n{history}"


def test_a_message_that_is_lost_doubled_or_changed_is_a_fault() -> None:
    history = History(1)
    while True:
        [name, *others] = [name for name, kept in history.kept.items() if not kept.dead and not name.startswith("another")]
        if len(others) > 1:
            break
        history = History(history.chance.randrange(10**6))
    for made in (history.new.send("mail", others[0], delay=7_200), history.new.send("mail", "unknown", delay=7_200)):
        assert made.outcome == "created"
    history.ended[others[1]] = "cancelled"
    [stored] = [
        each for topic in history.old.topics() for each in history.old.messages(topic, limit=1_000) if each.body == name
    ]
    history.old.cancel(stored.id)
    history.judge()
    says = "\n".join(history.faults)
    for expected in (f"{name} is lost", f"{others[0]} is there 2 times", f"{others[1]} was cancelled, and is there"):
        assert expected in says
    assert "unknown was never sent" in says
