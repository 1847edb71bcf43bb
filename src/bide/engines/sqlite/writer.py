"""All writes of a process to one file, many to a transaction.

The thread that gets the lock does the work of all callers that wait: work that arrives during a commit goes into the next
one. Callers in threads need no other thread for that; event loops, which must not wait, have one that does it for them.
"""

import contextlib
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeAlias

from bide.clock import MS
from bide.engines.sqlite import file
from bide.engines.sqlite.clock import EngineTime
from bide.engines.sqlite.failures import translated
from bide.engines.sqlite.job import Job
from bide.engines.sqlite.transaction import SQL, Transaction
from bide.engines.sqlite.watch import FileGone, FileIdentity
from bide.errors import BideError, EngineError, OutcomeUnknown, Unavailable
from bide.wakeable import refuse_reentry

MOST_JOBS = 64  # in one transaction
LAGGING = 100 * MS  # how far the time in the file may be behind that of a transaction which gave no token


class _NotBegun(Exception):
    """No transaction could be begun; `error` tells the user why."""

    def __init__(self, error: EngineError) -> None:
        super().__init__(str(error))
        self.error = error


_Done: TypeAlias = tuple[Job, Any, BideError | None]  # a job, and its answer or the error that refused it


def _is_committed(connection: sqlite3.Connection, error: BaseException) -> bool:
    """Whether a commit was done although an error came out of it: a signal handler raised that, right after the commit."""
    failures = (error, error.__context__)
    return not connection.in_transaction and not any(isinstance(each, sqlite3.Error) for each in failures)


class Writer:
    def __init__(self, path: str, wake: Callable[[set[tuple[str, str]]], None], wake_all: Callable[[], None]) -> None:
        self.path = path
        self._wake = wake
        self._wake_all = wake_all
        self._lock: threading.RLock = threading.RLock()
        self._connection: sqlite3.Connection | None = file.opened(path)
        self.identity: FileIdentity = FileIdentity(path)
        self.identity.opened()
        self._durable = True  # whether the connection is set to wait for the disk
        self.times: dict[str, EngineTime] = {}  # of each namespace
        self._waiting: deque[Job] = deque()
        self._bell = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._counter = 0
        self._others_wrote = False
        self.noticed: int = 0  # how often it was seen that another process has written
        self._unkept = False  # a transaction has read a later time than is stored
        self._tx: Transaction | None = None  # with what it has seen of the file, until somebody else writes or it is undone
        self.listened: bool = False  # whether anybody in this process has slept

    def do(self, job: Job) -> Any:
        """Do a job, here or in another thread that holds the lock."""
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

    def submit(self, work: Callable[[Transaction], Any], *, durable: bool) -> "Future[Any]":
        """Give work to the thread that works for event loops."""
        if self._thread is None:
            self._begin_thread()
        answer: Future[Any] = Future()
        self._waiting.append(Job(work, durable=durable, answer=answer))
        self._bell.set()
        return answer

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
        """Whether another process has written to the file since the last call, as far as is known without waiting."""
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
        """The counter rises with every commit but those of this connection."""
        [counter] = connection.execute(SQL["data_version"]).fetchone()
        if counter != self._counter:
            self._counter = counter
            self.noticed += 1
            self._others_wrote = True
            self._tx = None

    def close(self) -> None:
        """Do the jobs that wait, and close the file."""
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
        """Without this, the next process could see an earlier time than this one has shown. It does not wait for a lock."""
        with contextlib.suppress(sqlite3.Error, EngineError):
            connection = self._opened()
            connection.execute("begin immediate")
            Transaction(connection, self.times).times.keep_all()
            connection.execute("commit")

    def before_fork(self) -> None:
        """Wait for the running transaction, and close the file."""
        self._lock.acquire()
        self._shut()

    def after_fork(self) -> None:
        """Release the lock. The next call opens the file again."""
        self._lock.release()

    def forget(self) -> None:
        """In a forked child: the jobs and the thread are the parent's."""
        self._waiting.clear()
        self._bell = threading.Event()
        self._thread = None

    def _shut(self) -> None:
        self.identity.closed()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _opened(self) -> sqlite3.Connection:
        self.identity.check()
        if self._connection is None:
            self._connection, self._durable, self._counter = file.opened(self.path), True, 0
            self._tx = None
            self.identity.opened()
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
        """Under the lock: do the jobs that wait together; if that fails, do them one by one, so that each fails for itself."""
        jobs: list[Job] = []
        while self._waiting and len(jobs) < MOST_JOBS:
            job = self._waiting.popleft()
            if not job.answer.cancelled():
                jobs.append(job)
        if not jobs:
            return
        try:
            self._together(jobs)
        except BaseException:  # Ctrl-C reaches the thread that works for all of them, and none may wait for ever
            for job in jobs:
                if not job.answer.done():
                    job.fail(OutcomeUnknown("The process was interrupted meanwhile: it may have happened."))
            raise

    def _together(self, jobs: list[Job]) -> None:
        try:
            interruption = self._attempt(jobs)
        except _NotBegun as locked:
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
        """Do jobs in one transaction, but for those that are cancelled while it waits for the lock.

        Gives the error that a signal handler raised after the commit: then no job may be done a second time.
        """
        done: list[_Done] = []
        durable = True in [job.durable for job in jobs]
        connection = self._begin(durable)
        jobs = [job for job in jobs if job.begin()]
        try:
            self._notice(connection)  # here, because a process that writes all the time has no time for it in between
            before = connection.total_changes
            tx = self._transaction(connection)
            done = [(job, *self._result(job, tx, connection)) for job in jobs]
            if connection.total_changes == before or not tx.times.keep(LAGGING):
                self._unkept = True
            connection.execute("commit")
            self._tell(done, tx, durable)
        except BaseException as error:
            if done and _is_committed(connection, error):
                self._tell(done, tx, durable)
                return error
            with contextlib.suppress(sqlite3.Error):
                self._roll_back(connection)
            raise
        return None

    def _transaction(self, connection: sqlite3.Connection) -> Transaction:
        tx = self._tx
        if tx is None:
            tx = self._tx = Transaction(connection, self.times)
        tx.begin(listened=self.listened)
        return tx

    def _tell(self, done: list[_Done], tx: Transaction, durable: bool) -> None:
        """After the commit: answer the jobs, and wake the sleepers of their topics."""
        if (
            self.listened and not tx.listened
        ):  # it did not look whom to wake, and the first look may have come before the commit
            self._wake_all()
        elif tx.wakes:
            self._wake(tx.wakes)
        vanished = self._vanished() if durable else None
        for job, answer, refusal in done:
            if job.answer.done():
                continue
            if vanished is not None and job.durable:
                job.answer.set_exception(vanished)
            elif refusal is None:
                job.answer.set_result(answer)
            else:
                job.answer.set_exception(refusal)

    def _vanished(self) -> OutcomeUnknown | None:
        """What went into a file that was removed is not accepted."""
        try:
            self.identity.check()
        except FileGone as gone:
            return OutcomeUnknown(f"{gone} What was being done may be in the old file only.")
        return None

    def _begin(self, durable: bool) -> sqlite3.Connection:
        """Begin a transaction. A failure is for all jobs: trying one by one would wait for the lock as often."""
        try:
            connection = self._opened()
            if connection.in_transaction:  # a signal handler raised right behind a begin
                self._roll_back(connection)
            self._set_durable(connection, durable)
            file.begin(connection, self.path)
        except (sqlite3.Error, EngineError) as error:
            raise _NotBegun(translated(error, self.path) if isinstance(error, sqlite3.Error) else error) from error
        except BaseException:  # of a signal handler: while this transaction is open, no other process can write
            if self._connection is not None:
                self._roll_back(self._connection)
            raise
        return connection

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        """Roll back a transaction that was left open, and forget what it has done."""
        self._tx = None
        if connection.in_transaction:
            connection.execute("rollback")

    def _result(self, job: Job, tx: Transaction, connection: sqlite3.Connection) -> tuple[Any, BideError | None]:
        """A job's answer or refusal. After a refusal the transaction goes on, as long as the job has written nothing."""
        before = connection.total_changes
        try:
            return job.work(tx), None
        except BideError as refusal:
            if connection.total_changes != before:
                raise
            return None, refusal

    def _set_durable(self, connection: sqlite3.Connection, durable: bool) -> None:
        """Whether a commit waits for the disk. A lease need not: a machine that goes down takes the lease's holder with it."""
        if durable != self._durable:
            connection.execute(f"pragma synchronous = {'full' if durable else 'normal'}")
            self._durable = durable
