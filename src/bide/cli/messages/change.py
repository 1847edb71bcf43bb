"""`bide cancel` and `bide reschedule`: a pending message ended, or given a new time."""

from datetime import datetime

from bide.cli.exits import Exit
from bide.cli.messages.which import Which
from bide.cli.output import fields
from bide.cli.output.out import say, say_json
from bide.cli.output.times import due, now_ms
from bide.cli.place import Place
from bide.types import CancelResult, RescheduleResult

_CODES = {"cancelled": Exit.OK, "moved": Exit.OK, "running": Exit.RUNNING, "gone": Exit.GONE}


def cancel(place: Place, which: Which, *, as_json: bool = False) -> int:
    with place.queue() as queue:
        result = queue.cancel(which.id, topic=which.topic, key=which.key)
    if as_json:
        say_json({"result": result.value})
    elif result is CancelResult.CANCELLED:
        say(f"CANCELLED: {which} will never be delivered.")
    else:
        say(_refused(result, which))
    return _CODES[result.value]


def reschedule(place: Place, which: Which, delay: str | None, at: datetime | None, *, as_json: bool = False) -> int:
    with place.queue() as queue:
        result = queue.reschedule(which.id, topic=which.topic, key=which.key, delay=delay, at=at)
        info = queue.get(which.id, topic=which.topic, key=which.key) if result else None
    if as_json:
        say_json({"result": result.value, **fields.instant("due", None if info is None else info.due)})
    elif result is RescheduleResult.MOVED:
        say(f"MOVED: {which} has its new time." if info is None else f"MOVED: {which} is due {due(info.due, now_ms())}.")
    else:
        say(_refused(result, which))
    return _CODES[result.value]


def _refused(result: CancelResult | RescheduleResult, which: Which) -> str:
    if result.name == "RUNNING":
        return f"RUNNING: {which} was handed out and goes on."
    return f"GONE: {which} has ended, or never was."
