"""The two ends of a move: what is refused, because messages would be lost there or not be found."""

from typing import TYPE_CHECKING

from bide.cli.exits import WrongUsage
from bide.cli.output import note
from bide.cli.queues import QueueOptions
from bide.errors import ConfigError, SchemaMismatch, Unavailable

if TYPE_CHECKING:
    from bide.adopt.queue.move import QueueSource
    from bide.queue import Queue


def check(old: "Queue", new: "Queue") -> None:
    ours, theirs = (each.session.setup.source for each in (old, new))
    if (ours.shown, ours.namespace) == (theirs.shown, theirs.namespace):
        raise WrongUsage("FROM and TO are the same queue. Name another URL or another --to-namespace.")
    if not (old.capabilities.inspect and old.capabilities.cancel):
        raise ConfigError(
            f"{ours.shown} can't list what waits there. Let its workers run until it is empty, while senders use the other "
            "queue: the page Move to another engine of the documentation says how."
        )


def check_the_way_back(old: "Queue", new: "Queue") -> None:
    """What a move in the other direction has on its way is in neither queue for a reader of this one."""
    from bide.adopt.adoption import destination_of
    from bide.adopt.queue.transfer_log import OtherMove, destinations

    if new.capabilities.inspect and destination_of(old) in destinations(new.session.engine()):
        raise OtherMove("A move from TO to FROM was stopped on its way, or goes on. First let it end: run that command again.")


def check_that_they_differ(moving: "QueueSource", new: "Queue") -> None:
    """One queue may have two URLs. Then what is written to one of them is in the other, too."""
    moving.log.begin()
    if new.capabilities.inspect and moving.log.is_in(new.session.engine()):
        raise WrongUsage("FROM and TO are the same queue, by two URLs. Name another one.")


def check_the_give_back(old: "Queue", there: QueueOptions) -> None:
    """Raises a BideError if TO is there, and knows what it got, or may do so."""
    from bide.adopt.adoption import destination_of
    from bide.adopt.queue.transfer_log import destinations

    check(old, there.queue())
    if destinations(old.session.engine()) != {destination_of(there.queue())}:
        return
    try:
        new = there.open(otherwise="It is gone.")
    except ConfigError as error:  # a file
        note(f"bide: {error}")
        return
    try:
        with new:
            new.session.engine().put([])  # RabbitMQ is asked by the first call
            if new.capabilities.idempotent:  # else it never knows what it got
                _check_that_it_is_in_doubt(old)
    except Unavailable as error:
        note(f"bide: {error}")
    except (ConfigError, SchemaMismatch) as error:  # with another password, or a newer bide, it may be there
        raise ConfigError(
            f"{error} To go on with what was on its way, leave out --doubtful. If that queue is gone for good, name another "
            "one as TO, such as sqlite:///new.db."
        ) from error


def _check_that_it_is_in_doubt(old: "Queue") -> None:
    from bide.adopt.copies import SURE
    from bide.adopt.queue.transfer_log import OtherMove, age_of, batches_of

    batches, _ = batches_of(old.session.engine())
    if age_of(old.session.engine(), batches) <= SURE:
        raise OtherMove(
            "TO is there, and knows for nine minutes what it got, so nothing is in doubt: leave out --doubtful, and the "
            "command goes on with what was on its way. To go back, let it end, and move from TO to FROM."
        )
