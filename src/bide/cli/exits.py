"""The exit codes of the command line, each with its name."""

import enum


class Exit(enum.IntEnum):
    """How a command ended.

    OK       0    it did what was asked
    FAILED   1    it did not; standard error says why
    USAGE    2    the command line makes no sense; nothing was done
    RUNNING  3    the message was handed out and goes on: not cancelled, not moved
    GONE     4    the message has ended, or never was: not cancelled, not moved, not requeued
    STUCK    5    a worker process asks to be replaced: a handler does not heed its timeout
    DEAD     6    the message is a dead letter: not cancelled, not moved
    STOPPED  130  Ctrl-C
    CLOSED   141  the program that read the output has closed it, as `| head` does
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
