"""All writes of a process to one file, many to a transaction.

Whoever gets the lock does the work of all who wait: what gathers while a commit is under way goes into the next one.
Threads need no other thread for that; event loops, which must not wait, have one that does it for them.
"""

import contextlib
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeAlias

from bide.engines.sqlite import file
from bide.engines.sqlite.failures import translated
from bide.engines.sqlite.job import Job
from bide.engines.sqlite.presence import FileGone, Presence
from bide.engines.sqlite.turn import SQL, Time, Turn
from bide.errors import BideError, EngineError, OutcomeUnknown, Unavailable
from bide.reentry import refuse_reentry

MOST_JOBS = 64  # in one transaction


class _NoTurn(Exception):
    """No transaction could be begun; `error` is for the user."""

    def __init__(self, error: EngineError) -> None:
        super().__init__(str(error))
        self.error = error


_Done: TypeAlias = tuple[Job, Any, BideError | None]  # a job, and its answer or the error that refused it


def _is_committed(connection: sqlite3.Connection, error: BaseException) -> bool:
    """Whether a commit was done although an error came out of it: a signal handler raised that, right after the commit."""
    failures = (error, error.__context__)
    return not connection.in_transaction and not any(isinstance(each, sqlite3.Error) for each in failures)


def _give_up_open(connection: sqlite3.Connection) -> None:
    """End a transaction that nobody is in any more."""
    if connection.in_transaction:
        connection.execute("rollback")


class Writer:
    def __init__(self, path: str, wake: Callable[[set[tuple[str, str]]], None]) -> None:
        self.path = path
        self._wake = wake
        self._lock: threading.RLock = threading.RLock()
        self._connection: sqlite3.Connection | None = file.opened(path)
        self.presence: Presence = Presence(path)
        self.presence.opened()
        self._lasting = True  # how the connection is set
        self.times: dict[str, Time] = {}  # of each namespace
        self._waiting: deque[Job] = deque()
        self._bell = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._counter = 0
        self._others_wrote = False
        self._unkept = False  # time has gone on in a transaction that stored nothing

    def do(self, job: Job) -> Any:
        """Have a job done, by this thread or by one that is at it already."""
        self.refuse_reentry()
        self._waiting.append(job)
        try:
            while not job.answer.done():
                with self._lock:
                    if not job.answer.done():
                        self._one_transaction()
        except BideError as error:  # of a signal handler that called a queue: "nothing was done" is true of its call only
            raise OutcomeUnknown(
                "A signal handler raised an error in the middle of this call: it may have happened."
            ) from error
        return job.answer.result()

    def refuse_reentry(self) -> None:
        """Raise when this very thread is in the middle of a transaction."""
        refuse_reentry(self._lock)

    def submit(self, job: Job) -> "Future[Any]":
        """Have a job done by the thread that works for event loops."""
        if self._thread is None:
            self._begin_thread()
        self._waiting.append(job)
        self._bell.set()
        return job.answer

    def _begin_thread(self) -> None:
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="bide-sqlite", daemon=True)
                try:
                    thread.start()
                except (RuntimeError, MemoryError) as error:
                    raise Unavailable(f"No thread can be started to write to the file, so nothing was done: {error}") from error
                self._thread = thread

    def others_wrote(self) -> bool:
        """Whether anybody else has written to the file since this was asked last, as far as we know without waiting."""
        if self._lock.acquire(blocking=False):
            try:
                self._notice(self._opened())
            finally:
                self._lock.release()
        if not self._others_wrote:
            return False
        self._others_wrote = False
        return True

    def _notice(self, connection: sqlite3.Connection) -> None:
        """The counter rises with every commit but our own."""
        [counter] = connection.execute(SQL["data_version"]).fetchone()
        if counter != self._counter:
            self._counter = counter
            self._others_wrote = True

    def close(self) -> None:
        """Do what waits, and let go of the file."""
        self._closed = True
        self._bell.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            while self._waiting:
                self._one_transaction()
            if self._unkept:
                self._keep_times()
            self._shut()

    def _keep_times(self) -> None:
        """Or the next to open the file could find an earlier time than was shown. A lock is not waited for."""
        with contextlib.suppress(sqlite3.Error, EngineError):
            connection = self._opened()
            connection.execute("begin immediate")
            Turn(connection, self.times).keep_all_times()
            connection.execute("commit")

    def hold(self) -> None:
        """Before a fork: when no transaction is under way, let go of the file."""
        self._lock.acquire()
        self._shut()

    def go_on(self) -> None:
        """After a fork: the file is opened again by whoever needs it next."""
        self._lock.release()

    def forget(self) -> None:
        """After a fork, in the child: what waits is the parent's to do, and so was the thread."""
        self._waiting.clear()
        self._bell = threading.Event()
        self._thread = None

    def _shut(self) -> None:
        self.presence.closed()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _opened(self) -> sqlite3.Connection:
        self.presence.check()
        if self._connection is None:
            self._connection, self._lasting, self._counter = file.opened(self.path), True, 0
            self.presence.opened()
        return self._connection

    def _work(self) -> None:
        while not self._closed or self._waiting:
            self._bell.wait()
            if not self._closed:
                self._bell.clear()
            while self._waiting:
                with self._lock:
                    self._one_transaction()

    def _one_transaction(self) -> None:
        """Under the lock: take what waits, and do it together; if that fails, one by one, so that each has its own fate."""
        jobs: list[Job] = []
        while self._waiting and len(jobs) < MOST_JOBS:
            job = self._waiting.popleft()
            if not job.answer.cancelled():
                jobs.append(job)
        if not jobs:
            return
        try:
            self._together(jobs)
        except BaseException:  # Ctrl-C reaches the thread that works for all: nobody may wait for ever
            for job in jobs:
                if not job.answer.done():
                    job.fail(OutcomeUnknown("The process was interrupted meanwhile: it may have happened."))
            raise

    def _together(self, jobs: list[Job]) -> None:
        try:
            interruption = self._attempt(jobs)
        except _NoTurn as locked:
            for job in jobs:
                job.fail(locked.error)
        except Exception as error:
            if len(jobs) == 1:
                jobs[0].fail(translated(error, self.path) if isinstance(error, sqlite3.Error) else error)
                return
            for job in jobs:
                self._together([job])
        else:
            if interruption is not None:
                raise interruption

    def _attempt(self, jobs: list[Job]) -> BaseException | None:
        """Do jobs in one transaction. What is cancelled while the lock is waited for is not done.

        Gives what a signal handler raised when the commit was done: then no job may be done a second time.
        """
        done: list[_Done] = []
        connection = self._begin(any(job.lasting for job in jobs))
        jobs = [job for job in jobs if job.begin()]
        try:
            self._notice(connection)  # here, since a process that writes all the time finds no time for it in between
            before = connection.total_changes
            turn = Turn(connection, self.times)
            done = [(job, *self._result(job, turn, connection)) for job in jobs]
            if connection.total_changes != before:
                turn.keep_time()
            else:
                self._unkept = True
            connection.execute("commit")
            self._tell(done, turn)
        except BaseException as error:
            if done and _is_committed(connection, error):
                self._tell(done, turn)
                return error
            with contextlib.suppress(sqlite3.Error):
                connection.execute("rollback")
            raise
        return None

    def _tell(self, done: list[_Done], turn: Turn) -> None:
        """After the commit: answer those who have no answer yet, and wake who waits for their messages."""
        self._wake(turn.wakes)
        vanished = self._vanished() if any(job.lasting for job, _, _ in done) else None
        for job, answer, refusal in done:
            if job.answer.done():
                continue
            if vanished is not None and job.lasting:
                job.answer.set_exception(vanished)
            elif refusal is None:
                job.answer.set_result(answer)
            else:
                job.answer.set_exception(refusal)

    def _vanished(self) -> OutcomeUnknown | None:
        """Nothing counts as accepted that went into a file without a name."""
        try:
            self.presence.check()
        except FileGone as gone:
            return OutcomeUnknown(f"{gone} What was being done may be in the old file only.")
        return None

    def _begin(self, lasting: bool) -> sqlite3.Connection:
        """Begin a transaction; when that fails, it fails for all: to try one by one would be to wait as often."""
        try:
            connection = self._opened()
            _give_up_open(connection)  # a signal handler raised right behind a begin
            self._set_lasting(connection, lasting)
            file.begin(connection, self.path)
        except (sqlite3.Error, EngineError) as error:
            raise _NoTurn(translated(error, self.path) if isinstance(error, sqlite3.Error) else error) from error
        except BaseException:  # of a signal handler: nobody else could write while this transaction is open
            if self._connection is not None:
                _give_up_open(self._connection)
            raise
        return connection

    def _result(self, job: Job, turn: Turn, connection: sqlite3.Connection) -> tuple[Any, BideError | None]:
        """What a job came to; a refusal is a result like any other, as long as nothing was written before it."""
        before = connection.total_changes
        try:
            return job.work(turn), None
        except BideError as refusal:
            if connection.total_changes != before:
                raise
            return None, refusal

    def _set_lasting(self, connection: sqlite3.Connection, lasting: bool) -> None:
        """Whether a commit waits for the disk. A lease need not: when the machine goes down, so does its holder."""
        if lasting != self._lasting:
            connection.execute(f"pragma synchronous = {'full' if lasting else 'normal'}")
            self._lasting = lasting
