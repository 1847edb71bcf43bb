"""What each recipe does when it is run with short times: the same with bide, Celery and Dramatiq."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo


@dataclass(frozen=True)
class Story:
    """A worker runs, and the recipe's last lines are executed: `python -m examples.recipes.NAME`."""

    title: str
    settings: Mapping[str, str] | Callable[[], Mapping[str, str]]
    """Environment variables that make it quick."""
    worker: Sequence[str]
    """A pattern for each line that the worker prints, in any order; it prints no other."""
    sender: str = ""
    """What the last lines print."""

    def environment(self) -> dict[str, str]:
        return dict(self.settings() if callable(self.settings) else self.settings)

    def missing(self, lines: Sequence[str]) -> list[str]:
        """The patterns that no line matches; each line counts for one."""
        left = list(self.worker)
        for line in lines:
            for pattern in left:
                if re.fullmatch(pattern, line):
                    left.remove(pattern)
                    break
        return left


def _in_a_moment() -> Mapping[str, str]:
    """By the clock of London, where the story's user is in the end."""
    then = datetime.now(ZoneInfo("Europe/London")) + timedelta(seconds=6)
    return {"REMIND_AT": then.time().isoformat("seconds")}


STORIES = {
    "unpaid_order": Story(
        "An unpaid order is cancelled after 15 minutes",
        {"PAY_WITHIN": "1s"},
        ["order 2 is cancelled"],
        "paid: True",
    ),
    "two_reminders": Story(
        "A reminder in two steps, 15 + 15 minutes",
        {"REMIND_EVERY": "1s"},
        [
            "cart 1: you left something in your cart",
            "cart 1: the last one is reserved for 15 minutes more",
            "cart 1: your cart is closed",
        ],
        "paid: True",
    ),
    "confirm_delivery": Story(
        "A delivery is confirmed after 7 days, or later on request",
        {"CONFIRM_AFTER": "1s", "MORE_TIME": "1s"},
        ["order 1 is confirmed: pay the shop", "order 2 is confirmed: pay the shop"],
        "more time: True False",
    ),
    "group_purchase": Story(
        "A group purchase that closes",
        {"CLOSES_AFTER": "1s"},
        ["ship to ada", "ship to bob", "refund kim"],
        "joined: True True False True",
    ),
    "limited_sale": Story(
        "A limited-time sale",
        {"SALE_LENGTH": "3"},
        ["sale 1 is open: put it on the front page", "sale 1 is closed: 10 go back to the shelf"],
    ),
    "refund_poll": Story(
        "A refund is asked for until the bank has paid it",
        {"ASK_EVERY": "0.5s"},
        ["order 1 is refunded"],
    ),
    "remind_at_nine": Story(
        "A reminder at nine, in the user's own zone",
        _in_a_moment,
        ["good morning, ada"],
    ),
    "recall": Story(
        "A mail after 30 days of absence",
        {"ABSENT_FOR": "1s"},
        ["we miss you, ada"],
    ),
    "push_after_login": Story(
        "A message pushed after login",
        {"PUSH_AFTER": "1s"},
        ["push to laptop: welcome back, ada"],
    ),
    "retry_ladder": Story(
        "Tried again after 1 s, 5 s, 10 s, 1 min, then a dead letter",
        {"LADDER": "0.1s 0.2s 0.3s 0.4s"},
        ["webhook for order 1 is given up after 5 attempts: .+"],
    ),
    "sms": Story(
        "100 SMS a minute, from all workers together",
        {"SMS_RATE": "2/s"},
        ["0: Everything must go!", "1: Everything must go!", "2: Everything must go!", "3: Your code is 271828"],
    ),
    "lock_conflict": Story(
        "A lock that is taken: wait, come back later, or refuse",
        {},
        ["order 1 can't be refunded now: .+", "order 1 is shipped", "order 1 is counted again"],
        "order 1: gift wrapping",
    ),
    "ride_dispatch": Story(
        "A ride is offered in wider and wider circles",
        {"WIDEN_AFTER": "0.5s"},
        ["ride 1: there is no driver"],
    ),
    "device_timer": Story(
        "A device is switched on and off at set times",
        {"NIGHT": "3"},
        ["lamp is on", "lamp is off"],
    ),
    "search_index": Story(
        "A search index is updated when edits have stopped",
        {"QUIET_FOR": "1s"},
        ["page 1, version 3, is indexed: Hello"],
    ),
    "likes": Story(
        "Likes are written 500 at a time",
        {"LINGER": "1s"},
        ["400 likes are written"],
    ),
    "spread": Story(
        "Counters are written within an hour, at random",
        {"SPREAD": "2"},
        [f"post {number} is counted" for number in range(20)],
    ),
}

OUTBOX = Story(
    "An outbox in PostgreSQL",
    {"PAY_WITHIN": "1s"},
    ["order 2 is cancelled"],
    "paid: True",
)
"""Needs PostgreSQL beside Redis."""
