"""What errors of the broker and the driver mean to a user."""

import asyncio
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from aiormq import exceptions as theirs
from pamqp.exceptions import PAMQPException

from bide.errors import BideError, ConfigError, OutcomeUnknown, QueueFull, SchemaMismatch, Unavailable

UNKNOWN = "it may or may not have happened"
_LOST = (
    theirs.AMQPError,
    PAMQPException,
    OSError,
    RuntimeError,
    EOFError,
)  # RuntimeError: the driver's word for what is closed


@contextmanager
def told(shown: str, *, acts: bool = False) -> Iterator[None]:
    """Around calls of the driver: their errors become ours. `acts`: without an answer, it may have happened."""
    try:
        yield
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise _lost(shown, "the connection was closed", acts) from None  # the driver cancels what waits for an answer
    except TimeoutError as error:
        raise _lost(shown, "the broker did not answer in time", acts) from error
    except _LOST as error:
        raise translated(error, shown, acts=acts) from error
    except Exception as error:
        if type(error) is not Exception:  # which the driver gives to all that wait when it closes a connection
            raise
        raise _lost(shown, "the connection was closed", acts) from None


def translated(error: BaseException, shown: str, *, acts: bool = False) -> BideError:
    """An error of the broker or the driver, as ours. No text of it holds a password."""
    said = _said(error)
    if isinstance(error, theirs.AuthenticationError | theirs.ProbableAuthenticationError):
        return ConfigError(f"{shown} refuses the login: check the user, the password and the user's rights in the URL's vhost.")
    if _is_shut_out(error):
        return ConfigError(
            f"{shown} does not let this user into the virtual host, or there is none of this name: check the URL's user and "
            "vhost, and the user's rights there."
        )
    if isinstance(error, theirs.ChannelAccessRefused):
        return ConfigError(
            f"{shown}: this user lacks a right: {said.removeprefix('ACCESS_REFUSED - ')}. `bide doctor` prints the command "
            "that gives it all that bide needs."
        )
    if isinstance(error, theirs.ChannelPreconditionFailed) and "inequivalent arg" in said:
        return SchemaMismatch(
            f"{shown}: {said}. A queue or exchange of this namespace was made with other settings: use another namespace, or "
            "remove it by `bide doctor --remove` when it is empty."
        )
    if isinstance(error, theirs.ChannelLockedResource):
        return Unavailable(f"{shown}: another process looks through the same messages. Try again when it is done.")
    if isinstance(error, theirs.ChannelNotFoundEntity) and not acts:
        return Unavailable(f"{shown}: {said}. Somebody has removed it, so nothing was done; the next call makes it again.")
    if isinstance(error, theirs.PublishError):
        return Unavailable(f"{shown} found no queue for the message, so it was not sent. The next send makes the queue again.")
    if isinstance(error, theirs.DeliveryError):
        return QueueFull(
            f"{shown} refused the message: its queue is full, or most of its replicas are away. `bide doctor` tells which."
        )
    if isinstance(error, TimeoutError):
        said = "it does not answer in time"
    cause = error.__cause__  # the driver gives its own errors for those of the connection
    if isinstance(cause, ssl.SSLCertVerificationError):
        return Unavailable(
            f"{shown}: the broker's certificate is not trusted: {cause.verify_message}. Name the file of the authority that "
            "signed it, by the URL's option cafile."
        )
    if isinstance(cause, ssl.SSLError):
        return Unavailable(
            f"{shown} does not speak TLS there: {said}. Write amqp://, or the broker's port for TLS, such as 5671."
        )
    return _lost(shown, said, acts)


def is_astray(error: BideError) -> bool:
    """Whether there was no queue to lead a message to: somebody has removed it, its exchange or its binding."""
    return isinstance(error.__cause__, theirs.PublishError | theirs.ChannelNotFoundEntity)


def is_of_one_queue(error: BideError) -> bool:
    """Whether the broker refused one queue, and others may be well: rights, a queue that is gone, or has no leader."""
    refused = theirs.ChannelAccessRefused, theirs.ChannelNotFoundEntity, theirs.ConnectionInternalError
    return isinstance(error, QueueFull) or isinstance(error.__cause__, refused)


def size_limit(error: BideError) -> int | None:
    """The largest message that the broker takes, if it has closed the channel because of a larger one."""
    found = re.search(r"larger than configured max size (\d+)", str(error.__cause__))
    return None if found is None else int(found[1])


def is_foreseen(error: BaseException) -> bool:
    """Whether it is one of ours, or one that a lost connection brings."""
    return isinstance(error, (BideError, *_LOST))


def is_refused(error: BaseException) -> bool:
    """Whether no other broker of the cluster would say otherwise."""
    return isinstance(error, theirs.AuthenticationError | theirs.ProbableAuthenticationError) or _is_shut_out(error)


def _is_shut_out(error: BaseException) -> bool:
    """The driver takes the broker's refusal of a virtual host for an unexpected frame, and names it."""
    return isinstance(error, theirs.ConnectionNotAllowed) or (
        isinstance(error, theirs.InvalidFrameError) and "got <Connection.Close" in str(error.args)
    )


def _lost(shown: str, why: str, acts: bool) -> BideError:
    if acts:
        return OutcomeUnknown(f"{shown}: {why}, so {UNKNOWN}.")
    return Unavailable(f"{shown} can't be reached: {why}. Nothing was done. Is the broker running, and is the URL right?")


def _said(error: BaseException) -> str:
    """What the broker said, in one line. What the driver says of an address is left out: it may hold a password."""
    if isinstance(error, theirs.ChannelClosed | theirs.ConnectionClosed):
        texts = [each for each in error.args if isinstance(each, str) and each]
        return texts[-1].splitlines()[0] if texts else "the channel was closed"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.splitlines()[0]
    return type(error).__name__
