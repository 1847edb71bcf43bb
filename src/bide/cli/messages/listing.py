"""`bide list`: the messages of a topic, page by page."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bide.cli.exits import Exit
from bide.cli.output import fields
from bide.cli.output.columns import Columns
from bide.cli.output.out import is_terminal, say_json, tell
from bide.cli.output.safe import body_text
from bide.cli.output.times import LATE, local, now_ms, relative
from bide.cli.place import Place
from bide.types import Info, Page, State

if TYPE_CHECKING:
    from bide.queue import Queue

PAGE = 200  # messages in one look; their bodies are in memory together
SHORT = 100
_STYLES = {"scheduled": "", "ready": "green", "leased": "cyan", "dead": "red"}
_OVERDUE = "yellow"
_SHOWN = 1_000  # characters of a body on a terminal: no screen is wider


def run(
    place: Place, topic: str, state: State | None, limit: int | None, after: str | None, *, whole: bool, as_json: bool = False
) -> int:
    most = limit if limit is not None else None if whole else SHORT
    columns = Columns("id", "state", "due", "at", "attempt", "key", "body", short=("key",), spare=("at", "attempt"))
    count, mark = 0, None
    with place.queue() as queue:
        for page in _pages(queue, topic, state, most, after):
            count, mark = count + len(page), page.after
            if as_json:
                for info in page:
                    say_json(fields.message(info))
            else:
                now = now_ms()
                columns.add([_row(info, now) for info in page], [_style(info, now) for info in page])
    if not count:
        tell(f"There is no {state or 'message'} {'message ' if state else ''}in {topic}.")
    elif mark is not None:
        tell(f"There is more: go on with --after {mark}, or list --all.")
    return Exit.OK


def _pages(queue: "Queue", topic: str, state: State | None, most: int | None, after: str | None) -> Iterator[Page]:
    done = 0
    while most is None or done < most:
        page = queue.messages(topic, state=state, limit=PAGE if most is None else min(PAGE, most - done), after=after)
        done, after = done + len(page), page.after
        if page:
            yield page
        if after is None:
            return


def _style(info: Info, now: int) -> str:
    late = info.state == "ready" and now - info.due >= LATE * 1_000
    return _OVERDUE if late else _STYLES[info.state]


def _row(info: Info, now: int) -> tuple[str, ...]:
    body = body_text(info.body)
    return (
        info.id,
        info.state,
        relative(info.due, now),
        local(info.due),
        f"{info.attempt}/{info.max_attempts}",
        info.key or "",
        body[:_SHOWN] if is_terminal(sys.stdout) else body,
    )
