"""The contract suite on the RabbitMQ engine with one bug each: to be run by test_rabbitmq_controls.py, and to fail.

Elsewhere a bug is planted around an engine. What goes wrong here is inside: between what the broker has delivered and what
is claimed, ended and copied.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from bide.engines.aio import AsyncEngine
from bide.engines.base import End
from bide.engines.rabbitmq.aio import engine, inbox
from bide.engines.rabbitmq.aio.ends import AsyncEndings, Ending
from bide.engines.rabbitmq.holdings import Holdings
from bide.engines.rabbitmq.label import DeliveryEnd, LabelledDelivery, outcome
from bide.engines.rabbitmq.ladder import QueueNames
from tests.contract import test_rabbitmq
from tests.rabbitmq.ledger import Ledger
from tests.rabbitmq.patient import patient

NEVER = 2**62


class Planted(NamedTuple):
    """A bug, and the test of the contract that fails because of it."""

    plant: Callable[[pytest.MonkeyPatch], None]
    test: str


def ignores_tokens(patch: pytest.MonkeyPatch) -> None:
    """A delivery is ended by the message's id: whoever holds it by then."""
    patch.setattr(Holdings, "_find", lambda self, hold: self._held.get(hold.id))


def ignores_due_times(patch: pytest.MonkeyPatch) -> None:
    """What has come through the ladder is believed to be due."""
    plain = inbox.AsyncInbox.next
    patch.setattr(inbox, "TICK", NEVER)
    patch.setattr(inbox.AsyncInbox, "next", lambda self, topic, now: plain(self, topic, NEVER))


def loses_copies(patch: pytest.MonkeyPatch) -> None:
    """What comes back is acknowledged, and its copy was never sent."""

    async def forget(self: AsyncEndings, endings: Sequence[Ending]) -> list[None]:
        return [None] * len(endings)

    patch.setattr(AsyncEndings, "_copy", forget)


def counts_releases(patch: pytest.MonkeyPatch) -> None:
    """The broker counts deliveries, and what was released counts as tried."""

    def counted(end: End, delivered: LabelledDelivery, now: int) -> DeliveryEnd:
        made = outcome(end, delivered, now)
        if made.label is None or end.verdict != "release":
            return made
        return made._replace(label=replace(made.label, used=delivered.attempt))

    patch.setattr(engine, "outcome", counted)


def forgets_what_is_held(patch: pytest.MonkeyPatch) -> None:
    """Who holds as many messages as it has ever asked for gets no more."""
    patch.setattr(Holdings, "counts", lambda self, channel: {})


def mixes_namespaces(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(QueueNames, "topic", lambda self, topic: f"topic:{topic}")


FAULTS: dict[str, Planted] = {
    "IgnoresTokens": Planted(ignores_tokens, "test_an_old_token_is_lost_and_changes_nothing"),
    "IgnoresDueTimes": Planted(ignores_due_times, "test_a_message_is_never_handed_out_early"),
    "LosesCopies": Planted(loses_copies, "test_retry_makes_a_message_due_after_the_delay"),
    "CountsReleases": Planted(counts_releases, "test_release_gives_a_message_back_without_counting_the_attempt"),
    "ForgetsWhatIsHeld": Planted(forgets_what_is_held, "test_the_same_request_gives_the_same_deliveries"),
    "MixesNamespaces": Planted(mixes_namespaces, "test_namespaces_do_not_see_each_other"),
}


def contract_of(plant: Callable[[pytest.MonkeyPatch], None]) -> type[test_rabbitmq.TestRabbitmq]:
    class Faulty(test_rabbitmq.TestRabbitmq):
        @pytest.fixture(autouse=True)
        def fault(self, monkeypatch: pytest.MonkeyPatch) -> None:
            plant(monkeypatch)

        @pytest.fixture
        def wrap(self) -> Callable[[AsyncEngine, str], AsyncEngine]:
            """What never comes is not waited for so long."""
            ledgers: defaultdict[str, Ledger] = defaultdict(Ledger)
            return lambda engine, namespace: patient(engine, ledgers[namespace], patience=3)

    return Faulty


def no_fault(patch: pytest.MonkeyPatch) -> None:
    """The engine as it is."""


TestNoFault: Any = contract_of(no_fault)
for name, each in FAULTS.items():
    globals()[f"Test{name}"] = contract_of(each.plant)
