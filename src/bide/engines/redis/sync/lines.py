# Generated from ../aio/lines.py by tools/unasync.py; change that file instead.
"""A line: one connection, and a lane, its numbered stream of operations. A command whose answer does not come is sent
again under its number, on a new connection, and acts once.
"""

import threading
import time
from collections.abc import Sequence
from typing import Any

import redis.exceptions as theirs
from hiredis import pack_command

from bide.engines.redis.failures import LOST, TooOld, Unanswered, Unpinned, missing_script, passing, refused, translated
from bide.engines.redis.script import Script
from bide.engines.redis.server import Server
from bide.errors import Unavailable
from bide.ids import lane
from bide.signals import Signal

MOST = 32  # lines that one engine has open at a time
SOON, LATER = 0.02, 1.0  # seconds between two tries, growing


class Line:
    def __init__(self, server: Server) -> None:
        self._server = server
        self.patience: float = server.patience
        self._connection: Any = None
        self.lane: str = lane()
        self.number: int = 0

    def next_number(self) -> None:
        """For the next operation. One that was given up and still arrives is refused once this one has."""
        self.number += 1

    def run(self, script: Script, keys: Sequence[str], args: Sequence[Any], *, patience: float | None = None) -> Any:
        """What a script answers. Raises Unanswered when it may or may not have run."""
        command = ("EVALSHA", script.sha, len(keys), *keys, *args)
        return self._repeated(command, script, self.patience if patience is None else patience)

    def command(self, *args: Any) -> Any:
        """What a command that may be repeated answers."""
        return self._repeated(args, None, self.patience)

    def _repeated(self, command: tuple[Any, ...], script: Script | None, patience: float) -> Any:
        """Try until there is an answer, or patience ends."""
        end = time.monotonic() + patience
        pause, unsure = SOON, False  # unsure: one that was sent has had no answer, and may have acted
        while True:
            sent = False
            try:
                connection = self._connected()
                sent = True
                connection.send_packed_command([pack_command(command)], check_health=False)
                return connection.read_response()
            except theirs.ResponseError as error:
                if script is not None and missing_script(error):
                    command = ("EVAL", script.text, *command[2:])
                    continue
                if not passing(error):
                    told = translated(error, self._server.shown, self._server.secrets)
                    if unsure and not isinstance(told, Unpinned) and not (isinstance(told, TooOld) and told.sure):
                        raise self._given_up(error, unsure) from None
                    raise told from None
                failed: BaseException = error
            except LOST as error:
                if refused(error):
                    raise translated(error, self._server.shown, self._server.secrets) from None
                unsure = unsure or (sent and not passing(error))  # type: ignore[arg-type]
                failed = error
            self.abandon()
            if time.monotonic() + pause > end:
                raise self._given_up(failed, unsure)
            Signal().wait(pause)
            pause = min(LATER, 2 * pause)

    def _given_up(self, error: BaseException, unsure: bool) -> Unanswered | Unavailable:
        why = self._server.told(error)
        if not unsure:
            return Unavailable(f"{self._server.shown} can't be reached: {why}. Nothing was done; is it running, and let in?")
        given_up = self.lane, self.number
        self.lane, self.number = lane(), 0  # so that what is known of the operation stays known
        return Unanswered(f"{self._server.shown} did not answer in time: {why}. It may or may not have happened.", *given_up)

    def _connected(self) -> Any:
        if self._connection is None:
            self._connection = self._server.new_connection()
        if not self._server.is_open(self._connection):
            self._connection.connect()
        return self._connection

    def abandon(self) -> None:
        if self._connection is not None:
            self._server.abandon(self._connection)

    def close(self) -> None:
        if self._connection is not None:
            self._server.drop(self._connection)


class Lines:
    """The lines of one engine: a free one for whoever asks, or a new one."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._free: list[Line] = []
        self._room = threading.Semaphore(MOST)
        self._closed = False

    def take(self) -> Line:
        self._room.acquire()
        try:
            return self._free.pop()
        except IndexError:
            return Line(self._server)

    def give(self, line: Line) -> None:
        self._room.release()
        if self._closed:
            line.close()
        else:
            self._free.append(line)

    def abandon(self) -> None:
        """Close without the event loop, which is closed."""
        self._closed = True
        self._server.sever()

    def close(self) -> None:
        self._closed = True
        while self._free:
            self._free.pop().close()
