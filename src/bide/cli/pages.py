"""The messages that a command is about, page by page: of which topics, read up to a limit, and printed as a list."""

import itertools
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from bide.cli.exits import WrongUsage
from bide.cli.output import Table, echo_json, note_missing, now_ms
from bide.core import formats
from bide.types import Info, Page, State, Where

if TYPE_CHECKING:
    from bide.queue import Queue

LISTED = 100  # messages that a list has unless told otherwise
PAGE = 200  # messages in one look; their bodies are in memory together
CUT = ""  # in place of a mark: there are more messages, but no mark to go on from


def is_many(pattern: str | None) -> bool:
    """Whether more than one topic is meant."""
    return pattern is None or "*" in pattern


def find_topics(queue: "Queue", pattern: str | None) -> list[str]:
    """The topic of this name; or those that a pattern with * names, of which None names all."""
    if pattern is not None and "*" not in pattern:
        return [pattern]
    if not queue.capabilities.inspect:
        raise WrongUsage(f"{queue.session.setup.source.shown} can't list topics. Give the name of one, without *.")
    wanted = topic_pattern(pattern)
    return [each for each in queue.topics() if wanted.fullmatch(each)]


def topic_pattern(*patterns: str | None) -> re.Pattern[str]:
    """What the names of the topics match that are meant by any of these."""
    meant = (".*".join(map(re.escape, (pattern or "*").split("*"))) for pattern in patterns)
    return re.compile("|".join(meant), re.DOTALL)


def read_pages(
    queue: "Queue",
    pattern: str | None,
    states: Sequence[State | None],
    limit: int | None = None,
    *,
    after: str | None = None,
    where: Where | None = None,
) -> Iterator[Page]:
    """Pages of the messages of a topic, or of those that a pattern names: up to `limit` messages, or all without one.

    The last page has a mark if there may be more.
    """
    left = sys.maxsize if limit is None else limit
    each = list(itertools.product(find_topics(queue, pattern), states))
    for place, (topic, state) in enumerate(each, 1):
        while left:
            page = queue.messages(topic, state=state, limit=PAGE if where else min(PAGE, left), after=after, where=where)
            after = page.after
            kept, left = page[:left], max(0, left - len(page))
            if not left and (len(kept) < len(page) or place < len(each)):
                yield Page(kept, CUT, page.missing)
            elif kept or page.missing:
                yield Page(kept, after, page.missing)
            if after is None:
                break


def print_pages(
    pages: Iterator[Page],
    table: Table,
    row: Callable[[Info, int], tuple[str, ...]],
    style: Callable[[Info, int], str] = lambda info, now: "",
    *,
    as_json: bool,
) -> tuple[int, str | None]:
    """Print pages of messages. Returns how many there were, and the mark to go on from if there are more."""
    count, mark = 0, None
    missing: set[str] = set()
    for page in pages:
        count, mark = count + len(page), page.after
        note_missing([each for each in page.missing if each not in missing])
        missing.update(page.missing)
        if as_json:
            for info in page:
                echo_json(formats.message(info))
        else:
            now = now_ms()
            table.add([row(info, now) for info in page], [style(info, now) for info in page])
    return count, mark
