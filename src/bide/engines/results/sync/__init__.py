# Generated from ../aio.py by tools/unasync.py; change that file instead.
"""The seam's other side door: the verbs of kept results. As with the engine's verbs, every line with a dash is a promise."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from bide.engines.results import Arrival, Dependent, Expected, Follow, Kept, Result


class Results(ABC):
    """Of one engine, open while it is, whose tend removes what is over. Batch first; times, `now` and `connection` as in the
    engine's verbs.

    - Results belong to their namespace.
    """

    @abstractmethod
    def expect(
        self, expected: Sequence[Expected | Dependent], *, connection: object | None = None, now: int | None = None
    ) -> None:
        """Remember that messages were sent whose results are to be kept, and what messages wait for.

        - A result that is expected is not done.
        - Expecting again changes nothing.
        - What is expected is forgotten in time.
        - Depending again changes nothing.
        - What a message waits for is forgotten in time.
        """

    @abstractmethod
    def fulfil(self, kept: Sequence[Kept], *, now: int | None = None) -> list[list[str]]:
        """Keep what messages returned; each is answered with the dependent messages that follow it.

        - A result is read as it was kept.
        - A result may be kept that nobody expected.
        - A result may be done without a value.
        - The last value of a result counts.
        - What an earlier delivery returned changes nothing.
        - A result is forgotten in time.
        - Fulfilling tells who follows.
        """

    @abstractmethod
    def read(self, ids: Sequence[str], *, now: int | None = None) -> list[Result | None]:
        """What is known of results.

        - Nothing is known of a result that was never expected.
        """

    @abstractmethod
    def follow(
        self, follows: Sequence[Follow], *, connection: object | None = None, now: int | None = None
    ) -> list[bool | None]:
        """Have dependent messages told when others are done. Of each of those: whether it is done; None: it is not known.

        - What is done already is told.
        - What is not known can not be followed.
        """

    @abstractmethod
    def arrive(self, arrivals: Sequence[Arrival], *, now: int | None = None) -> list[bool]:
        """Note that messages are done; of each, whether the dependent one has nothing left to wait for.

        When a dependent message was called, an arrival without `on` says so, and what it waits for is forgotten. Until then it
        is ready whenever that is asked again: so a caller that dies in between loses nobody.

        - A dependent message is ready when all it waits for has arrived.
        - What arrives again changes nothing.
        - A dependent message that was forgotten is not ready.
        - Forgetting leaves other dependent messages alone.
        """
