"""The model: what it must let pass, and the lies that it must catch."""

from collections.abc import Sequence
from copy import deepcopy

import pytest
from msgspec.structs import replace

from bide.engines.base import (
    Capabilities,
    Claim,
    Claimed,
    End,
    Ended,
    Hold,
    Move,
    NewMessage,
    Ref,
    Stored,
    Swept,
    Tended,
    Verdict,
)
from bide.engines.stored import lease_ended
from bide.types import CancelResult, Outcome, RescheduleResult, Sent, Stats
from tests.model.model import Divergence, Model

T0 = 1_000_000
LEASE = 10_000
DAY = 86_400_000


@pytest.fixture
def model() -> Model:
    return Model(Capabilities(accepted=""), dead_for=DAY, dead_max=2)


def put(
    model: Model, id: str, *, now: int = T0, due: int | None = None, outcome: Outcome = "created", **options: object
) -> Sent:
    new = NewMessage("mail", b"body", **options)  # type: ignore[arg-type]
    sent = Sent(id, "mail", now + new.delay if due is None else due, outcome)
    model.put([new], now, [sent])
    return sent


def claimed(
    id: str,
    token: str = "1",
    *,
    due: int = T0,
    since: int | None = None,
    attempt: int = 1,
    key: str | None = None,
    most: int = 3,
    began: int | None = None,
) -> Claimed:
    return Claimed(id, "mail", b"body", {}, key, due, due if since is None else since, attempt, most, token, began)


def claim(
    model: Model, *messages: Claimed, now: int = T0, limit: int = 10, next_due: int | None = None, request: str | None = None
) -> None:
    model.claim(["mail"], limit, LEASE, request, now, Claim(messages, now, next_due))


def settle(model: Model, id: str, token: str, verdict: Verdict, answer: Ended, *, now: int = T0, delay: int = 0) -> None:
    trace = b"why" if verdict == "retry" and token == "1" else None
    model.settle([End("mail", id, token, verdict, delay, "why", trace=trace)], now, [answer])


def tend(model: Model, *answer: Tended, now: int, left: Sequence[str] = ()) -> None:
    model.tend(10, now, answer, left)


def test_an_honest_life_passes(model: Model) -> None:
    # sent for later, moved, handed out, tried again, lost by its worker, buried, given a new life, done
    put(model, "m", delay=5_000, key="k")
    put(model, "m", delay=9_000, key="k", due=T0 + 5_000, outcome="kept")
    claim(model, next_due=T0 + 5_000)
    model.reschedule([Move(Ref(topic="mail", key="k"), 7_000)], T0, [RescheduleResult.MOVED])
    claim(model, claimed("m", due=T0 + 7_000, key="k"), now=T0 + 7_000)
    model.cancel([Ref("m")], T0 + 7_000, [CancelResult.RUNNING])
    settle(model, "m", "1", "retry", "scheduled", now=T0 + 8_000, delay=1_000)
    claim(model, claimed("m", "2", due=T0 + 9_000, since=T0 + 7_000, attempt=2, key="k"), now=T0 + 9_000)
    tend(model, Tended(returned=1), now=T0 + 9_000 + LEASE)
    began = T0 + 9_000
    last = claimed("m", "3", due=T0 + 9_000, since=T0 + 7_000, attempt=3, key="k", began=began)
    for wrong in (None, began - 1, began + LEASE + 1):
        with pytest.raises(Divergence, match="began"):
            claim(deepcopy(model), replace(last, began=wrong), now=T0 + 20_000)
    claim(model, last, now=T0 + 20_000)
    settle(model, "m", "3", "retry", "dead", now=T0 + 20_000)
    model.stats(None, None, T0 + 20_000, Stats(dead=1, topics={"mail": Stats(dead=1)}))
    shown = Stored("m", "mail", "ready", T0 + 20_000, 0, 3, "k", 1, b"body", {}, None, None, None)
    model.requeue("mail", None, (0, 0), 10, T0 + 20_000, Swept(1, False), [shown])
    records = [b"why", lease_ended(2, began)]
    for wrong_records in (records[:1], records[::-1], [b"why", lease_ended(2, began - 1)], [b"who", records[1]]):
        with pytest.raises((Divergence, ValueError)):
            model.get([Ref("m")], T0 + 20_000, [replace(shown, traces=wrong_records)])
    model.get([Ref("m"), Ref("n")], T0 + 20_000, [replace(shown, traces=records), None])
    claim(model, claimed("m", "4", due=T0 + 20_000, key="k"), now=T0 + 20_000)
    settle(model, "m", "4", "done", "done", now=T0 + 20_000)
    model.stats(None, None, T0 + 20_000, Stats())


def test_a_time_that_is_behind_counts_as_the_highest_seen(model: Model) -> None:
    put(model, "m", now=T0 + 500)
    model.put([NewMessage("mail", b"body")], T0, [Sent("n", "mail", T0 + 500, "created")])


def test_it_notices_a_delivery_that_is_early(model: Model) -> None:
    put(model, "m", delay=50)
    with pytest.raises(Divergence, match="m of mail was handed out at 1000049 though it is scheduled, due 1000050"):
        claim(model, claimed("m", due=T0 + 50), now=T0 + 49)


def test_it_notices_a_message_that_was_lost(model: Model) -> None:
    put(model, "m")
    with pytest.raises(Divergence, match="claim's count: expected 1, got 0"):
        claim(model)
    with pytest.raises(Divergence, match=r"get Ref.*expected Stored.*got None"):
        model.get([Ref("m")], T0, [None])
    with pytest.raises(Divergence, match="stats of all topics"):
        model.stats(None, None, T0, Stats())
    with pytest.raises(Divergence, match=r"ids: expected \['m'\], got \[\]"):
        model.scan("mail", None, T0, [])


def test_it_notices_a_message_that_is_handed_out_twice(model: Model) -> None:
    put(model, "m")
    put(model, "n")
    with pytest.raises(Divergence, match="m of mail was handed out at 1000000 though it is leased"):
        claim(model, claimed("m"), claimed("m", "2", attempt=2))
    put(model, "o")
    with pytest.raises(Divergence, match="m of mail was handed out at 1000000 though it is leased"):
        claim(model, claimed("m", "2", attempt=2), limit=1)


def test_it_notices_a_message_that_nobody_sent(model: Model) -> None:
    put(model, "m")
    with pytest.raises(Divergence, match="was never sent"):
        claim(model, claimed("x"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"body": b"other"},
        {"headers": {"x": "y"}},
        {"key": "k"},
        {"due": T0 - 1},
        {"since": T0 - 1},
        {"attempt": 2},
        {"max_attempts": 4},
        {"topic": "news"},
    ],
)
def test_it_notices_a_message_that_was_changed(model: Model, wrong: dict[str, object]) -> None:
    put(model, "m")
    with pytest.raises(Divergence, match="claim: expected Claimed"):
        claim(model, replace(claimed("m"), **wrong))


@pytest.mark.parametrize("token", ["10", "09", ""])
def test_it_notices_a_token_that_does_not_rise_as_text(model: Model, token: str) -> None:
    put(model, "m")
    claim(model, claimed("m", "10"))
    settle(model, "m", "10", "release", "scheduled")
    with pytest.raises(Divergence, match=f"the token '{token}' of m is not above '10'"):
        claim(model, claimed("m", token))


def test_it_notices_what_comes_in_the_wrong_order(model: Model) -> None:
    put(model, "late", delay=10)
    put(model, "early", delay=5)
    put(model, "equal", delay=5)
    late, early, equal = claimed("late", due=T0 + 10), claimed("early", due=T0 + 5), claimed("equal", due=T0 + 5)
    for wrong in ([late], [early, late], [equal], [equal, early]):
        with pytest.raises(Divergence, match="came before"):
            claim(deepcopy(model), *wrong, now=T0 + 10, limit=len(wrong))
    claim(model, early, equal, late, now=T0 + 10)


def test_it_lets_a_priority_come_first(model: Model) -> None:
    put(model, "low", level=2)
    put(model, "high", level=0, now=T0 + 1)
    claim(model, claimed("high", due=T0 + 1), now=T0 + 1, limit=1)


def test_it_notices_a_topic_that_starves(model: Model) -> None:
    for id in ("m", "n"):
        put(model, id)
    model.put([NewMessage("news", b"")], T0, [Sent("o", "news", T0, "created")])
    with pytest.raises(Divergence, match=r"nothing was taken from \{'news'\}"):
        model.claim(["mail", "news"], 2, LEASE, None, T0, Claim([claimed("m"), claimed("n")], T0, None))


def test_it_notices_an_old_token_that_is_accepted(model: Model) -> None:
    put(model, "m")
    claim(model, claimed("m", "1"))
    tend(model, Tended(returned=1), now=T0 + LEASE)
    claim(model, claimed("m", "2", attempt=2, began=T0), now=T0 + LEASE)
    with pytest.raises(Divergence, match="expected 'lost', got 'done'"):
        settle(model, "m", "1", "done", "done", now=T0 + LEASE)
    with pytest.raises(Divergence, match="extend"):
        model.extend([Hold("mail", "m", "1")], LEASE, T0 + LEASE, [True])
    settle(model, "m", "2", "done", "done", now=T0 + LEASE)


def test_it_lets_a_late_end_count_until_the_lease_is_taken_back(model: Model) -> None:
    put(model, "m")
    claim(model, claimed("m"))
    settle(model, "m", "1", "done", "done", now=T0 + DAY)


def test_it_notices_a_second_life_after_the_end(model: Model) -> None:
    put(model, "m")
    model.cancel([Ref("m")], T0, [CancelResult.CANCELLED])
    put(model, "n")
    with pytest.raises(Divergence, match="though it is cancelled"):
        claim(model, claimed("m"))
    with pytest.raises(Divergence, match="'m' is not a new id"):
        put(model, "m")


def test_it_notices_a_cancel_that_lies(model: Model) -> None:
    put(model, "m")
    claim(model, claimed("m"))
    with pytest.raises(Divergence, match="cancel"):
        model.cancel([Ref("m")], T0, [CancelResult.CANCELLED])
    settle(model, "m", "1", "done", "done")
    with pytest.raises(Divergence, match="cancel"):
        model.cancel([Ref("m")], T0, [CancelResult.RUNNING])


@pytest.mark.parametrize("told", ["GONE", "RUNNING", "CANCELLED"])
def test_it_notices_a_dead_letter_that_is_called_something_else(model: Model, told: str) -> None:
    put(model, "m", key="k")
    claim(model, claimed("m", key="k"))
    settle(model, "m", "1", "dead", "dead")
    model.cancel([Ref("m"), Ref(topic="mail", key="k")], T0, [CancelResult.DEAD, CancelResult.GONE])
    model.reschedule([Move(Ref("m"))], T0, [RescheduleResult.DEAD])
    with pytest.raises(Divergence, match="cancel"):
        model.cancel([Ref("m")], T0, [CancelResult[told]])


def test_a_dead_letter_that_is_too_old_may_be_dead_or_gone(model: Model) -> None:
    put(model, "m")
    claim(model, claimed("m"))
    settle(model, "m", "1", "dead", "dead")
    for told in (CancelResult.DEAD, CancelResult.GONE):
        model.cancel([Ref("m")], T0 + 1_000 * DAY, [told])


def test_it_notices_an_operation_that_acts_twice(model: Model) -> None:
    put(model, "m", operation="o")
    with pytest.raises(Divergence, match="put again"):
        put(model, "n", operation="o", now=T0 + 599_999)
    put(model, "n", operation="o", now=T0 + 600_000)


def test_it_notices_a_request_that_is_not_the_same_again(model: Model) -> None:
    for id in ("m", "n", "o"):
        put(model, id)
    claim(model, claimed("m"), claimed("n"), limit=2, request="r")
    settle(model, "m", "1", "release", "scheduled")
    claim(model, claimed("n"), limit=2, request="r")
    for wrong in ([], [claimed("n", "2")], [claimed("n"), claimed("o")], [claimed("m"), claimed("n")]):
        with pytest.raises(Divergence, match="claim again"):
            claim(model, *wrong, limit=2, request="r")
    settle(model, "n", "1", "done", "done")
    claim(model, claimed("m", "2"), claimed("o", "2"), limit=2, request="r")


def test_it_notices_a_claim_of_no_topics_that_gives_more_or_less_than_its_request_holds(model: Model) -> None:
    for id in ("m", "n", "o"):
        put(model, id)
    claim(model, claimed("m"), claimed("n"), limit=2, request="r", next_due=T0)
    model.claim([], 1, LEASE, "r", T0, Claim([claimed("n"), claimed("m")], T0, None))
    for wrong in ([claimed("m")], [claimed("m"), claimed("n"), claimed("o", "2")]):
        with pytest.raises(Divergence, match="claim again"):
            model.claim([], 1, LEASE, "r", T0, Claim(wrong, T0, None))
    with pytest.raises(Divergence, match="next due is none"):
        model.claim([], 1, LEASE, "r", T0, Claim([claimed("n"), claimed("m")], T0, T0))
    for request in ("s", None):
        model.claim([], 1, LEASE, request, T0, Claim([], T0, None))
        with pytest.raises(Divergence, match="o of mail was handed out at 1000000 though it is paused or not asked for"):
            model.claim([], 1, LEASE, request, T0, Claim([claimed("o", "2")], T0, None))


def test_it_notices_a_retry_after_the_last_attempt(model: Model) -> None:
    put(model, "m", max_attempts=1)
    claim(model, claimed("m", most=1))
    with pytest.raises(Divergence, match="expected 'dead', got 'scheduled'"):
        settle(model, "m", "1", "retry", "scheduled")


def test_it_notices_what_is_handed_out_after_its_expiry_or_in_a_pause(model: Model) -> None:
    put(model, "m", expires_in=10)
    with pytest.raises(Divergence, match="m of mail was handed out at 1000010 though it is expired"):
        claim(model, claimed("m"), now=T0 + 10)
    put(model, "n", now=T0 + 10)
    model.pause("mail", True)
    with pytest.raises(Divergence, match="n of mail was handed out at 1000010 though it is paused or not asked for"):
        claim(model, claimed("n", due=T0 + 10), now=T0 + 10)


def test_it_knows_which_leases_tend_was_told_to_leave_alone(model: Model) -> None:
    put(model, "m")
    claim(model, claimed("m"))
    with pytest.raises(Divergence, match="tend"):
        model.tend(10, T0 + 9 * LEASE, [Tended(returned=1)], [], T0 + LEASE - 1)
    model.tend(10, T0 + 9 * LEASE, [Tended()], [], T0 + LEASE - 1)
    model.tend(10, T0 + 9 * LEASE, [Tended(returned=1)], [], T0 + LEASE)


def test_it_counts_what_tend_says_that_it_did(model: Model) -> None:
    put(model, "m", max_attempts=1)
    put(model, "n", expires_in=LEASE, delay=1)
    claim(model, claimed("m", most=1), next_due=T0 + 1)
    for wrong in (
        Tended(),
        Tended(1),
        Tended(1, 1),
        Tended(1, 0, 1),
        Tended(1, 1, 2),
        Tended(1, 1, 1, 1),
        Tended(1, 1, 1, more=True),
    ):
        with pytest.raises(Divergence, match="tend"):
            tend(deepcopy(model), wrong, now=T0 + LEASE + 1, left=["m"])
    tend(model, Tended(1, 1), Tended(expired=1), now=T0 + LEASE + 1, left=["m"])


def test_it_lets_only_the_oldest_dead_be_dropped(model: Model) -> None:
    for at, id in enumerate(("m", "n", "o")):
        put(model, id, now=T0 + at)
        claim(model, claimed(id, due=T0 + at), now=T0 + at)
        settle(model, id, "1", "dead", "dead", now=T0 + at)
    with pytest.raises(Divergence, match="ages of those gone"):
        tend(deepcopy(model), Tended(dropped=1), now=T0 + 3, left=["m", "n"])
    tend(model, Tended(), now=T0 + 3, left=["n", "o"])  # they may have been dropped before tend
    model.stats("mail", None, T0 + 3, Stats(dead=2, dead_dropped=1))


def test_it_notices_a_listing_in_the_wrong_order(model: Model) -> None:
    put(model, "a", delay=2_000)
    put(model, "b", delay=1_000)
    a, b = model.expected.stored("mail")
    model.scan("mail", None, T0, [b, a])
    with pytest.raises(Divergence, match="order"):
        model.scan("mail", None, T0, [a, b])


def test_it_lists_dead_letters_as_they_died(model: Model) -> None:
    for id in ("a", "b"):
        put(model, id)
    claim(model, claimed("a"), claimed("b"))
    for now, id in enumerate(("b", "a"), T0 + 1):
        settle(model, id, "1", "dead", "dead", now=now)
    a, b = model.expected.stored("mail")
    model.scan("mail", "dead", T0 + 2, [b, a])
    with pytest.raises(Divergence, match="order"):
        model.scan("mail", "dead", T0 + 2, [a, b])
