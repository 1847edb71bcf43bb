"""What the errors of the server and its driver mean to a user, and after which of them a call may be repeated."""

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
)
_MISSING = (theirs.UndefinedFunction, theirs.InvalidSchemaName, theirs.UndefinedTable)
_FULL = (theirs.DiskFull, theirs.OutOfMemory, theirs.ProgramLimitExceeded)
_REFUSED = (theirs.InvalidPassword, theirs.InvalidAuthorizationSpecification, theirs.InvalidCatalogName)


class Tries:
    """Of one call: how long it is repeated, and after which pauses."""

    def __init__(self, timeout: float) -> None:
        self.unsure: bool = False  # it was sent and not answered, so it may have acted
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
    """Whether no answer came: the connection is broken."""
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and getattr(error, "sqlstate", None) is None


def is_passing(error: BaseException) -> bool:
    """Whether nothing was done, and trying again may help. Two equal operations that met are among them."""
    if isinstance(error, theirs.UniqueViolation):
        return error.diag.constraint_name == "answer_pkey"
    return isinstance(error, _AGAIN)


def translated(error: psycopg.Error, shown: str) -> BideError:
    """An error of the server, as ours. No text of it holds a password."""
    if error.sqlstate == _TOO_FAR:
        return BadTime("A message can't be due more than a hundred years from now.")
    said = (error.diag.message_primary or str(error)).strip().splitlines() or [type(error).__name__]
    if isinstance(error, _MISSING):
        return SchemaMismatch(f"{shown} has no tables of bide for this namespace, or older ones: run `bide migrate`.")
    if isinstance(error, theirs.InsufficientPrivilege):
        return ConfigError(f"{shown}: this user lacks a right: {said[0]}. `bide doctor` tells which are needed.")
    if isinstance(error, _REFUSED):
        return ConfigError(f"{shown} refuses the login: {said[0]}. Check the user, the password and the database in the URL.")
    if isinstance(error, _FULL):
        return QueueFull(f"{shown} is full, so nothing was stored: {said[0]}.")
    return Unavailable(f"{shown}: {said[0]}. Nothing was done; try again when it answers.")
