"""What the errors of the server and its driver mean to a user, and after which of them a call may be repeated."""

import re
import time

import psycopg
from psycopg import errors as theirs

from bide.errors import BadTime, BideError, ConfigError, QueueFull, SchemaMismatch, Unavailable

PATIENCE = 3  # times the timeout: for how long a call is repeated
SOON, LATER = 0.02, 1.0  # seconds between two tries, growing
_TOO_FAR = "BD001"  # what our functions raise
_AGAIN = (
    theirs.SerializationFailure,
    theirs.DeadlockDetected,
    theirs.AdminShutdown,
    theirs.CrashShutdown,
    theirs.CannotConnectNow,
    theirs.TooManyConnections,
    theirs.ReadOnlySqlTransaction,  # a standby, or a primary that is being replaced
    theirs.LockNotAvailable,
    theirs.IdleSessionTimeout,
    theirs.ProtocolViolation,  # what PgBouncer says of itself
)
_MET = ("answer_pkey", "message_key")  # what two calls may store at the same moment
_ENDING = (theirs.AdminShutdown, theirs.CrashShutdown)  # said at any moment, also after a commit
_MISSING = (theirs.UndefinedFunction, theirs.InvalidSchemaName, theirs.UndefinedTable)
_STRANGE = (  # in a schema that somebody else has made
    theirs.DuplicateTable,
    theirs.DuplicateObject,
    theirs.DuplicateFunction,
    theirs.UndefinedColumn,
    theirs.WrongObjectType,
    theirs.InvalidFunctionDefinition,
)
_FULL = (theirs.DiskFull, theirs.OutOfMemory, theirs.ProgramLimitExceeded)
_REFUSED = re.compile(  # what a server says before it lets somebody in has no number
    r"password authentication failed|no password supplied|role \".*\" does not exist|database \".*\" does not exist"
    r"|no pg_hba\.conf entry|is not permitted to log in|permission denied for database|authentication failed for user"
)

_WRONG = re.compile(  # what libpq or the server says of an option of the URL
    r"invalid \S+ value: |invalid integer value |bad value for connect_timeout|could not match \d+ |value \".*\" invalid when"
    r"|(?:certificate|key) file \".*\"|definition of service \".*\" not found|unrecognized configuration parameter"
    r"|invalid value for parameter|does not support SSL, but SSL was required|authentication method requirement \".*\" failed"
)
_ABSENT = re.compile(r"[Cc]onnection refused|accepting (?:TCP/IP )?connections")
_HEAD = re.compile(r"^connection (?:is bad|failed): ")


class Tries:
    """Of one call: how long it is repeated, and after which pauses."""

    def __init__(self, timeout: float) -> None:
        self.unsure: bool = False  # it was sent and not answered, so it may have acted
        self.useful: bool = True  # it may end otherwise when it is repeated
        self._until = time.monotonic() + PATIENCE * timeout
        self._pause = SOON

    def pause(self) -> float:
        """Seconds until the next try."""
        pause, self._pause = self._pause, min(2 * self._pause, LATER)
        return pause

    @property
    def over(self) -> bool:
        return time.monotonic() + self._pause > self._until


def is_lost(error: BaseException) -> bool:
    """Whether no answer came: the connection is broken, or too slow."""
    if not isinstance(error, psycopg.Error):
        return True
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and error.sqlstate is None


def may_have_acted(error: BaseException) -> bool:
    """Whether a statement that was sent and ended like that may have been committed."""
    return is_lost(error) or isinstance(error, _ENDING)


def is_useless(error: BaseException) -> bool:
    """Whether a connection that said so should be left, and those made before it: another server may be the primary by now."""
    return is_lost(error) or is_read_only(error) or is_forgotten(error)


def is_refused(error: BaseException) -> bool:
    """Whether the server does not let this user in, so that trying again is no use."""
    return isinstance(error, psycopg.Error) and (_REFUSED.search(str(error)) or _WRONG.search(str(error))) is not None


def is_absent(error: BaseException) -> bool:
    """Whether nothing listens there. A server that was there may come back; one that never was may have another address."""
    return isinstance(error, psycopg.Error) and error.sqlstate is None and _ABSENT.search(str(error)) is not None


def is_read_only(error: BaseException) -> bool:
    """Whether the server, or the user's default, takes no writes."""
    return isinstance(error, theirs.ReadOnlySqlTransaction)


def is_forgotten(error: BaseException) -> bool:
    """Whether what a connection has prepared is no use any more: somebody has dropped it, or made the function anew."""
    if isinstance(error, theirs.FeatureNotSupported):
        return error.diag.source_function == "RevalidateCachedQuery"
    return isinstance(error, theirs.InvalidSqlStatementName)


def is_passing(error: BaseException) -> bool:
    """Whether nothing was done, and trying again may help."""
    if isinstance(error, theirs.UniqueViolation):
        return error.diag.constraint_name in _MET
    return isinstance(error, _AGAIN) or is_forgotten(error)


def translated(error: psycopg.Error, shown: str) -> BideError:
    """An error of the server, as ours. No text of it holds a password."""
    if error.sqlstate == _TOO_FAR:
        return BadTime("A message can't be due more than a hundred years from now.")
    said = _HEAD.sub("", (error.diag.message_primary or str(error)).strip()).splitlines() or [type(error).__name__]
    if isinstance(error, _MISSING):
        return SchemaMismatch(f"{shown} has no tables of bide for this namespace, or older ones: run `bide migrate`.")
    if isinstance(error, _STRANGE):
        return SchemaMismatch(
            f"{shown}: {said[0]}. The schema of this namespace holds something that bide did not make: use another namespace."
        )
    if isinstance(error, theirs.InsufficientPrivilege):
        return ConfigError(
            f"{shown}: this user lacks a right: {said[0]}. Run `bide migrate` as a user who has it, and grant what "
            "the page PostgreSQL of the documentation lists."
        )
    if error.sqlstate is None and _WRONG.search(str(error)):
        return ConfigError(f"{shown} can't use an option of the URL: {said[0]}. Correct it, or leave it out.")
    if error.sqlstate is None and is_refused(error):
        return ConfigError(f"{shown} refuses the login: {said[0]}. Check the user, the password and the database in the URL.")
    if is_read_only(error):
        return Unavailable(
            f"{shown} takes no writes: it is a standby, or default_transaction_read_only is on. Nothing was done. To follow "
            "the primary, name all servers in the URL: postgres://one,two/database."
        )
    if error.sqlstate is None:
        return Unavailable(
            f"{shown} can't be reached, so nothing was done: {said[0]}. Is the server running, and is the URL right?"
        )
    if isinstance(error, theirs.LockNotAvailable):
        return Unavailable(
            f"{shown}: another transaction holds the same key or message until it ends, so nothing was done. Commit it sooner; "
            "inside of it, pass connection= to every call of the queue."
        )
    if isinstance(error, _FULL):
        return QueueFull(f"{shown} is full, so nothing was stored: {said[0]}.")
    return Unavailable(f"{shown}: {said[0]}. Nothing was done; try again when it answers.")
