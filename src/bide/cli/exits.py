"""How a command ends: the exit codes with their names, and the error for options that don't go together."""

import enum

import typer


class Exit(enum.IntEnum):
    """How a command ended.

    OK       0    the command did what was asked
    FAILED   1    the command failed; standard error says why
    USAGE    2    the command line is wrong; nothing was done
    RUNNING  3    a worker has the message: not cancelled, not moved
    GONE     4    the message has ended, or was never sent: not cancelled, not moved; requeue, purge: some ids are not dead
    STUCK    5    a worker process asks to be replaced: a handler ignores its timeout
    DEAD     6    the message is a dead letter: not cancelled, not moved
    STOPPED  130  Ctrl-C
    CLOSED   141  the reader of the output has closed it, as `| head` does
    """

    OK = 0
    FAILED = 1
    USAGE = 2
    RUNNING = 3
    GONE = 4
    STUCK = 5
    DEAD = 6
    STOPPED = 130
    CLOSED = 141


class WrongUsage(typer.BadParameter):
    """The command line is wrong as a whole, and no single value of it. The text says what to do."""

    def format_message(self) -> str:
        return self.message
