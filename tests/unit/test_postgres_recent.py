"""What is remembered of topics for a moment."""

from bide.engines.postgres.recent import MOMENT, Recent


def test_a_moment_is_remembered_and_no_more_than_two() -> None:
    recent = Recent()
    now = 1_000.0
    for number in range(10_000):
        now += MOMENT / 100
        recent.note([f"t{number}"], now)
        assert recent.at(f"t{number}") == now
        assert number < 90 or recent.at(f"t{number - 90}") > 0
    assert recent.at("t0") == 0.0
    assert len(recent._young) + len(recent._old) <= 202


def test_the_last_time_counts() -> None:
    recent = Recent()
    recent.note(["a", "b"], 10.0)
    recent.note(["a"], 10.5)
    assert (recent.at("a"), recent.at("b"), recent.at("c")) == (10.5, 10.0, 0.0)
    recent.note([], 11.5)
    recent.note(["b"], 11.6)
    assert (recent.at("a"), recent.at("b")) == (10.5, 11.6)
