"""A claim for a due time begins as much sooner as it takes to get to the server."""

import random

import pytest

from bide.engines.redis.namespace import Lead

MINUTES = 20_000  # claims


@pytest.mark.parametrize("usual", [0.0001, 0.0004, 0.0008])
def test_most_claims_are_with_the_server_when_their_message_is_due_and_few_before(usual: float) -> None:
    lead, draw = Lead(), random.Random(1)
    now, due, late = 1_000.0, 0, list[float]()
    plan = lead.plan(now, now, 0, 10)
    for _ in range(MINUTES):
        assert plan is not None
        began = plan + draw.uniform(0, 0.0001)
        due += 10
        there = began + usual * draw.uniform(0.7, 1.3) + (0.05 if draw.random() < 0.01 else 0)  # and sometimes a hiccup
        late.append(there - now - due / 1_000)
        plan = lead.plan(there, there, round((there - now) * 1e6), due + 10)
    settled = late[1_000:]
    assert 0.05 < sum(each < 0 for each in settled) / len(settled) < 0.3
    assert sorted(settled)[len(settled) // 2] < (usual + 0.00005) / 2


def test_a_claim_that_had_other_reasons_teaches_nothing() -> None:
    lead = Lead()
    for began, us in ((0.5, 500_000), (3.0, 3_000_000), (1.0 - 1e-6, 999_999)):
        lead.plan(0.0, 0.0, 0, 1_000)
        lead.plan(began, began, us, None)
        assert lead.seconds == 0.0
