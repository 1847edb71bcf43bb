"""Where bide's log lines go: to the standard `logging`, whose handlers and filters may fail without harm to the caller."""

import logging
import sys
import traceback
from contextlib import suppress
from typing import Any

from bide.raised import presentable, readable

_failed: set[str] = set()  # loggers by name: several modules write to one


class Log:
    """A logger by its name. A handler or filter that raises is told of once, on standard error, and goes no further."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def at(self, level: int, text: str, *args: object, **more: Any) -> None:
        self._say(level, text, args, more)

    def debug(self, text: str, *args: object, **more: Any) -> None:
        self._say(logging.DEBUG, text, args, more)

    def info(self, text: str, *args: object, **more: Any) -> None:
        self._say(logging.INFO, text, args, more)

    def warning(self, text: str, *args: object, **more: Any) -> None:
        self._say(logging.WARNING, text, args, more)

    def error(self, text: str, *args: object, **more: Any) -> None:
        self._say(logging.ERROR, text, args, more)

    def exception(self, text: str, *args: object) -> None:
        """An error, with the traceback of the exception that is being handled."""
        self._say(logging.ERROR, text, args, {"exc_info": sys.exception()})

    def critical(self, text: str, *args: object, **more: Any) -> None:
        self._say(logging.CRITICAL, text, args, more)

    def listens(self, level: int) -> bool:
        """Whether lines of this level are written at all."""
        return self._logger.isEnabledFor(level)

    def _say(self, level: int, text: str, args: tuple[object, ...], more: dict[str, Any]) -> None:
        if isinstance(error := more.get("exc_info"), BaseException):
            more["exc_info"] = presentable(readable(error))
        try:
            self._logger.log(level, text, *args, stacklevel=3, **more)
        except KeyboardInterrupt:
            raise
        except BaseException:  # SystemExit and groups too: what is done with a message must not depend on who reads of it
            self._complain()

    def _complain(self) -> None:
        """As `logging` itself tells of handlers that fail. Once, or a busy worker would tell nothing else."""
        if self._logger.name in _failed or not logging.raiseExceptions:
            return
        _failed.add(self._logger.name)
        with suppress(Exception):
            sys.stderr.write(f"A logging handler or filter of {self._logger.name} has failed. More of this is not told:\n")
            traceback.print_exc(file=sys.stderr)
