"""Messages that wait for others: what a send may say, and what is noted of it."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from bide.core import options
from bide.engines.base import MAX_BATCH
from bide.errors import BadMessage, BadOption, BadTime
from bide.queue.deliveries import DEPENDS
from bide.types import Duration, IfExists, Sent

DEADLINE = "1d"  # unless a send says otherwise


def id_of(message: str | Sent) -> str:
    return message.id if isinstance(message, Sent) else options.text(message, "message", 128)


def refuse_times(depends_on: object, delay: Duration | None, at: datetime | None, if_exists: IfExists) -> None:
    """Refuse what says when a message is due that waits for others."""
    if depends_on is None:
        raise BadOption("deadline= belongs to depends_on=: without it, say when the message is due with delay= or at=.")
    if delay is not None or at is not None:
        raise BadTime("depends_on= says when the message is due, and deadline= when at the latest: leave delay= and at= out.")
    if if_exists not in ("keep", "error"):
        raise BadOption(f"depends_on= goes with if_exists='keep' or 'error': with {if_exists!r}, another message would wait.")


def with_dependencies(headers: Mapping[str, str] | None, given: Iterable[str | Sent]) -> Mapping[str, str]:
    """The headers, and those that the message waits for, each once."""
    if isinstance(given, str | Sent) or not isinstance(given, Iterable):
        raise BadOption(f"depends_on is a {type(given).__name__}. Give a list of what was sent, or of ids.")
    each: object
    for each in (given := tuple(given)):
        if not isinstance(each, str | Sent):
            raise BadOption(f"depends_on holds a {type(each).__name__}. Give what send returned, or ids.")
    ids = dict.fromkeys(id_of(each) for each in given)
    if not 1 <= len(ids) <= MAX_BATCH:
        raise BadOption(f"depends_on names {len(ids):,} messages. Give 1 to {MAX_BATCH:,}; these may depend on others.")
    if any("," in each for each in ids):
        raise BadOption("depends_on has an id with a comma, which no message has.")
    return {**options.headers(headers), DEPENDS: ",".join(ids)}


def check_known(ids: Sequence[str], known: Iterable[object]) -> None:
    """Refuse what nobody would tell of."""
    unknown = [id for id, found in zip(ids, known, strict=True) if found is None]
    if unknown:
        raise BadMessage(
            f"A message can't depend on {unknown[0]}: nothing is known of its result. Give its task keep=, longer than others "
            "take, and send it before."
        )
