"""One SQLite file: how it is found, opened, recognised and brought to the present layout."""

import contextlib
import math
import os
import re
import sqlite3
import time
from importlib.resources import files

from bide.engines.sqlite.failures import is_locked, translated
from bide.errors import BadUrl, ConfigError, SchemaMismatch, Unavailable
from bide.logs import Log

_log = Log("bide.sqlite")
APPLICATION_ID = 0x62696465  # "bide"
PATIENCE = 30.0  # seconds to wait for another process's write lock
PAGES_BETWEEN_CHECKPOINTS = 4_000
WAL_LIMIT = 64 * 2**20  # bytes that the write-ahead log is cut back to

NETWORKS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "afs", "ceph", "glusterfs", "fuse.glusterfs", "lustre"}
)

unnamed: set[str] = set()
"""Files that are used because nobody gave a URL: the log says when one is created."""

_STEP = re.compile(r"^-- step: (\d{4}_\w+)\n", re.MULTILINE)
_OCTAL = re.compile(r"\\([0-7]{3})")  # how a mount table writes spaces and the like


def _steps(file: str) -> tuple[str, ...]:
    """In order, each behind a line `-- step: 0001_name`."""
    _, *named = _STEP.split(files(__package__).joinpath(file).read_text(encoding="utf-8"))
    numbers = [int(name[:4]) for name in named[::2]]
    if numbers != list(range(1, len(numbers) + 1)):
        raise ValueError(f"the steps of {file} are not numbered one by one: {named[::2]}")
    return tuple(named[1::2])


MIGRATIONS = _steps("migrations.sql")
"""They lead from an empty file to the present layout. A release refuses a layout that it does not know."""

ADDITIONS = _steps("additions.sql")
"""Tables, columns that may be null, and triggers: a release before them passes over them, so both may use the file at once."""


def path_of(url: str) -> str:
    """`sqlite:///relative.db`, `sqlite:////absolute.db`: the absolute path of the file."""
    host, slash, path = url.removeprefix("sqlite://").partition("/")
    if path == ":memory:":
        raise BadUrl(
            "The SQLite engine needs a file. For messages in memory use memory://, or memory://name to share them in a process."
        )
    if "?" in path or "#" in path:
        raise BadUrl("An SQLite URL ends with the file's name: give options, as namespace=, to the queue and not after ? or #.")
    if host or not slash or not path:
        raise BadUrl(
            "An SQLite URL is sqlite:///folder/file.db, or with four slashes from the root: sqlite:////var/lib/bide.db."
        )
    return os.path.abspath(path)


def opened(path: str) -> sqlite3.Connection:
    """A connection to a file that is ours and of the present layout."""
    connection = connect(path)
    try:
        prepare(connection, path)
        connection.execute("pragma busy_timeout = 0")  # from here on, _patiently waits, in smaller steps
    except BaseException:
        connection.close()
        raise
    return connection


def connect(path: str, *, read_only: bool = False) -> sqlite3.Connection:
    """A connection in autocommit, for use under a lock of the caller's."""
    _refuse_network(path)
    make_private(path)
    try:
        connection = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise translated(error, path) from error
    try:
        connection.execute(f"pragma journal_size_limit = {WAL_LIMIT}")
        connection.execute(f"pragma wal_autocheckpoint = {PAGES_BETWEEN_CHECKPOINTS}")
        connection.execute("pragma synchronous = full")
        connection.execute("pragma temp_store = memory")
        connection.execute(f"pragma query_only = {int(read_only)}")
    except sqlite3.Error as error:
        connection.close()
        raise translated(error, path, PATIENCE) from error
    return connection


def prepare(connection: sqlite3.Connection, path: str) -> None:
    """Recognise the file, and bring it to the present layout; processes that come together do it once."""
    try:
        recognise(connection, path)
        if not _tables(connection):
            connection.execute("pragma auto_vacuum = incremental")
        _ensure_wal(connection, path)
        if _version(connection) < len(MIGRATIONS) or _added(connection) < len(ADDITIONS):
            _migrate(connection, path)
    except sqlite3.Error as error:
        raise translated(error, path, PATIENCE) from error


def begin(connection: sqlite3.Connection, path: str) -> None:
    """Take the write lock."""
    _patiently(connection, "begin immediate", path)


def _patiently(connection: sqlite3.Connection, statement: str, path: str) -> None:
    """Try again while another process holds the lock, a little longer each time.

    SQLite's own waiting would hold the interpreter's lock for none of it but sleeps up to 100 ms; this wakes sooner.
    """
    until, pause = math.inf, 0.0005
    while True:
        try:
            connection.execute(statement)
            return
        except sqlite3.OperationalError as error:
            if not is_locked(error):
                raise
            now = time.monotonic()
            until = min(until, now + PATIENCE)
            if now > until:
                raise translated(error, path, PATIENCE) from error
        time.sleep(pause)
        pause = min(pause * 1.5, 0.002)


def recognise(connection: sqlite3.Connection, path: str) -> None:
    """Refuse a file that is not ours, or of a release to come; an empty one is welcome."""
    if connection.in_transaction:
        _recognise(connection, path)
        return
    connection.execute("begin")  # all of it at one moment, or a file that is being laid out would look like a stranger's
    try:
        _recognise(connection, path)
    finally:
        connection.execute("rollback")


def _recognise(connection: sqlite3.Connection, path: str) -> None:
    [application] = connection.execute("pragma application_id").fetchone()
    version = _version(connection)
    if application == 0 and version == 0 and not _tables(connection):
        return
    if application != APPLICATION_ID:
        raise SchemaMismatch(
            f"{path} belongs to another program: its tables are not bide's. Name another file. In a file that your application "
            "and bide share, bide's tables must be the first: see the page SQLite of the documentation."
        )
    if version > len(MIGRATIONS):
        raise SchemaMismatch(
            f"{path} has layout {version}, and this release of bide knows up to {len(MIGRATIONS)}: update bide here, "
            "as it was updated where the file was last used."
        )


def _ensure_wal(connection: sqlite3.Connection, path: str) -> None:
    """Also of a file that was written by a backup, which may have left the mode behind."""
    if _journal_mode(connection) != "wal":
        _patiently(connection, "pragma journal_mode = wal", path)
        if _journal_mode(connection) != "wal":
            raise ConfigError(
                f"{path} can't be used by several processes, as its filesystem shares no memory: use a local disk."
            )


def _journal_mode(connection: sqlite3.Connection) -> str:
    [mode] = connection.execute("pragma journal_mode").fetchone()
    return str(mode)


def _version(connection: sqlite3.Connection) -> int:
    [version] = connection.execute("pragma user_version").fetchone()
    return int(version)


def _added(connection: sqlite3.Connection) -> int:
    """The last of the additions that the file has."""
    if connection.execute("select 1 from sqlite_schema where name = 'bide_added'").fetchone() is None:
        return 0
    [number] = connection.execute("select number from bide_added").fetchone()
    return int(number)


def _tables(connection: sqlite3.Connection) -> int:
    [tables] = connection.execute("select count(*) from sqlite_schema").fetchone()
    return int(tables)


def _migrate(connection: sqlite3.Connection, path: str) -> None:
    connection.execute("pragma legacy_alter_table = 1")  # else a rename fails over any view or trigger that does not work
    begin(connection, path)
    try:
        recognise(connection, path)  # again, under the lock: another process may have been here
        for number, script in enumerate(MIGRATIONS[_version(connection) :], _version(connection) + 1):
            for statement in _split(script):
                connection.execute(statement)
            connection.execute(f"pragma user_version = {number}")
        for number, script in enumerate(ADDITIONS[_added(connection) :], _added(connection) + 1):
            for statement in _split(script):
                connection.execute(statement)
            connection.execute("update bide_added set number = ?", (number,))
        connection.execute(f"pragma application_id = {APPLICATION_ID}")
        connection.execute("commit")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("rollback")
        raise
    finally:
        connection.execute("pragma legacy_alter_table = 0")


def _split(script: str) -> list[str]:
    """The statements of a script; `executescript` would commit in between."""
    statements, piece = [], ""
    for line in script.splitlines(keepends=True):
        piece += line
        if sqlite3.complete_statement(piece):
            statements.append(piece)
            piece = ""
    return statements


def make_private(path: str) -> None:
    """A file that is made here is for this user alone, as SQLite then makes its companions: bodies may be confidential.

    Only a file that is not there yet: to open and close one that is would drop the locks this process has on it.
    """
    real = os.path.realpath(path)  # a link may point to a file that is not there yet
    try:
        os.close(os.open(real, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return
    except OSError as error:
        raise Unavailable(
            f"{real} can't be made ({error.strerror}): name a folder that exists and that this user may write to."
        ) from error
    if path in unnamed:
        _log.warning(
            "No URL was given and $BIDE_URL is not set, so a new queue was created in %s. If your messages belong on a server, "
            "set BIDE_URL in every process that uses the queue.",
            path,
        )


def _refuse_network(path: str) -> None:
    """Over a network, SQLite's locks and shared memory can't be trusted, and messages would be lost in silence."""
    kind = mounted_as(path)
    if kind in NETWORKS:
        raise ConfigError(
            f"{path} is on a network mount ({kind}), where SQLite can't keep its word: use a local disk or another engine."
        )


def mounted_as(path: str, table: str = "/proc/self/mounts") -> str | None:
    """The kind of filesystem that holds a path, where the system tells."""
    try:
        with open(table, encoding="utf-8", errors="replace") as lines:
            mounts = [[_OCTAL.sub(lambda code: chr(int(code[1], 8)), part) for part in line.split()[1:3]] for line in lines]
    except OSError:
        return None
    real = os.path.realpath(path)
    holding = [(point, kind) for point, kind in mounts if real == point or real.startswith(point.rstrip("/") + "/")]
    return max(reversed(holding), key=lambda mount: len(mount[0]))[1] if holding else None  # the last one on a point covers it
