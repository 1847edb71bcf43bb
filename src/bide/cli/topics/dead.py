"""`bide dead`: a topic's dead letters, and what each died of."""

from bide.cli.exits import Exit
from bide.cli.output import fields
from bide.cli.output.columns import Columns
from bide.cli.output.out import say_json, tell
from bide.cli.output.times import local, now_ms, relative
from bide.cli.place import Place
from bide.types import Info

PAGE = 200


def run(place: Place, topic: str, limit: int, *, as_json: bool = False) -> int:
    columns = Columns("id", "was due", "at", "attempts", "key", "last error", short=("key",), spare=("at",))
    count, mark = 0, None
    with place.queue() as queue:
        while count < limit:
            page = queue.messages(topic, state="dead", limit=min(PAGE, limit - count), after=mark)
            count, mark = count + len(page), page.after
            if as_json:
                for info in page:
                    say_json(fields.message(info))
            elif page:
                columns.add([_row(info, now_ms()) for info in page])
            if mark is None:
                break
    if not count:
        tell(f"{topic} has no dead letters.")
    elif mark is not None:
        tell(f"There is more: --limit says how many, and `bide list {topic} --state dead --all` gives all.")
    return Exit.OK


def _row(info: Info, now: int) -> tuple[str, ...]:
    attempts = f"{info.attempt}/{info.max_attempts}"
    return info.id, relative(info.due, now), local(info.due), attempts, info.key or "", info.last_error or ""
