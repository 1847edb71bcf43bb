"""`bide cancel` and `bide reschedule`: a pending message ended, or given a new time."""

from datetime import datetime

from bide.cli.exits import Exit
from bide.cli.messages.which import Which
from bide.cli.output import fields
from bide.cli.output.out import say, say_json
from bide.cli.output.times import due, now_ms
from bide.cli.place import Place
from bide.types import CancelResult, Info, RescheduleResult

_CODES = {"RUNNING": Exit.RUNNING, "DEAD": Exit.DEAD, "GONE": Exit.GONE}


def cancel(place: Place, which: Which, *, as_json: bool = False) -> int:
    with place.queue() as queue:
        result = queue.cancel(which.id, topic=which.topic, key=which.key)
        dead = queue.get(which.id) if result is CancelResult.DEAD else None
        if result is CancelResult.GONE:
            which.say_if_no_id(queue)
    if as_json:
        say_json({"result": result.value})
    elif result is CancelResult.CANCELLED:
        say(f"CANCELLED: {which} will never be delivered.")
    else:
        say(_refused(result, which, dead))
    return _CODES.get(result.name, Exit.OK)


def reschedule(place: Place, which: Which, delay: str | None, at: datetime | None, *, as_json: bool = False) -> int:
    with place.queue() as queue:
        result = queue.reschedule(which.id, topic=which.topic, key=which.key, delay=delay, at=at)
        known = result in (RescheduleResult.MOVED, RescheduleResult.DEAD)
        info = queue.get(which.id, topic=which.topic, key=which.key) if known else None
        if result is RescheduleResult.GONE:
            which.say_if_no_id(queue)
    if as_json:
        say_json({"result": result.value, **fields.instant("due", info.due if result and info is not None else None)})
    elif result is RescheduleResult.MOVED:
        say(f"MOVED: {which} has its new time." if info is None else f"MOVED: {which} is due {due(info.due, now_ms())}.")
    else:
        say(_refused(result, which, info))
    return _CODES.get(result.name, Exit.OK)


def _refused(result: CancelResult | RescheduleResult, which: Which, dead: Info | None) -> str:
    if result.name == "RUNNING":
        return f"RUNNING: {which} was handed out and goes on."
    if result.name == "DEAD":
        topic = "TOPIC" if dead is None else dead.topic
        return (
            f"DEAD: {which} is a dead letter. `bide requeue {topic} {which.id}` gives it a new life, "
            f"`bide purge {topic} --state dead` drops all dead letters of its topic."
        )
    return f"GONE: {which} has ended, or never was."
