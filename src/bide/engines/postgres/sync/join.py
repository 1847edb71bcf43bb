# Generated from ../aio/join.py by tools/unasync.py; change that file instead.
"""Calls in the caller's own transaction, each in a savepoint: one that is refused leaves the transaction as it was."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias
from weakref import WeakSet

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from bide.engines.callers import in_use, take
from bide.engines.postgres.join import WHERE, Borrowed, Whole, elsewhere, plain, refuse_state, told
from bide.engines.postgres.layout import filled
from bide.engines.postgres.location import Address
from bide.engines.postgres.statements import Rows
from bide.errors import SchemaMismatch, Unavailable
from bide.wakeable import Signal

AnyConnection: TypeAlias = psycopg.Connection[Any]
UTF8 = "utf-8"
WHILE = 0.1  # seconds for which others wait while one asks where the queue is


class Joiner:
    def __init__(self, address: Address, ask: Callable[[str], Rows]) -> None:
        """`ask`: by a connection of the engine's own."""
        self._shown = address.shown
        self._where = filled(WHERE, address.schema)
        self._ask = ask
        self._here: Rows = []
        self._looks = False  # somebody asks anew where the queue is
        self._known: WeakSet[AnyConnection] = WeakSet()  # those that were found to have the queue's database

    def locate(self) -> None:
        """Ask where the queue is, so that joining needs no connection but the caller's: a pooler may have no other to give."""
        self._here = self._ask(self._where)

    def run(self, connection: object, sql: str, args: Sequence[Any]) -> Rows:
        """The rows of a statement. Without an answer the caller has no transaction left: there is nothing to repeat."""
        own = Borrowed().lend(connection)
        number, mine = id(own), object()
        try:
            take(number, mine)
            refuse_state(own)
            whole = Whole[Rows]()
            return whole.done(lambda: self._undone_if_it_fails(own, whole, sql, args))
        except psycopg.Error as error:
            raise told(error, self._shown) from error
        finally:
            if number in in_use and in_use[number] is mine:
                del in_use[number]

    def _undone_if_it_fails(self, own: AnyConnection, whole: Whole[Rows], sql: str, args: Sequence[Any]) -> Rows:
        idle = own.info.transaction_status == TransactionStatus.IDLE
        try:
            return self._in_savepoint(own, whole, sql, args)
        except BaseException:
            if idle and not own.closed:  # it was begun here
                with contextlib.suppress(psycopg.Error):
                    self._execute(own, "rollback")
            raise

    def _in_savepoint(self, own: AnyConnection, whole: Whole[Rows], sql: str, args: Sequence[Any]) -> Rows:
        self._execute(own, "savepoint bide")
        try:
            whole.may_stop = True
            rows = self._in_utf8(own, sql, args)
        except BaseException:
            whole.may_stop = False
            if not own.closed:
                with contextlib.suppress(psycopg.Error):
                    self._execute(own, "rollback to bide")
                    self._execute(own, "release bide")
            raise
        whole.may_stop = False
        self._execute(own, "release bide")
        return rows

    def _in_utf8(self, own: AnyConnection, sql: str, args: Sequence[Any]) -> Rows:
        """With a client encoding that has all letters."""
        theirs = None if own.info.encoding == UTF8 else own.info.parameter_status("client_encoding")
        if theirs is not None:
            self._set_encoding(own, "UTF8")
        if own not in self._known:
            self._look(own)
        rows = self._execute(own, sql, args)
        if theirs is not None:
            self._set_encoding(own, theirs)
        return rows

    def _set_encoding(self, own: AnyConnection, encoding: str) -> None:
        self._execute(own, "select pg_catalog.set_config('client_encoding', %s, true)", [encoding])

    def _look(self, own: AnyConnection) -> None:
        """Refuse a connection that is not to the queue's database. One that was looked at stays there."""
        [there] = self._execute(own, self._where)
        if there[:2] not in [each[:2] for each in self._here]:
            self._locate_anew()
            [here] = self._here
            if there[:2] != here[:2]:
                raise elsewhere(self._shown, own)
        if not there[2]:
            raise SchemaMismatch(f"{self._shown} has no tables of bide for this namespace any more: run `bide migrate`.")
        self._known.add(own)

    def _locate_anew(self) -> None:
        """The server may have been started anew. One asks; others may hold all that a pooler has, and wait only briefly."""
        if self._looks:
            Signal().wait(WHILE)
        if self._looks:
            raise Unavailable(
                f"{self._shown} was started anew, and the queue has yet to find it again. This call changed nothing: roll "
                "back, and run the transaction again."
            )
        try:
            self._looks = True
            self.locate()
        finally:
            self._looks = False

    def _execute(self, own: AnyConnection, sql: str, args: Sequence[Any] = ()) -> Rows:
        """By a cursor of our own: the caller's may make other rows, or take other arguments."""
        cursor = psycopg.Cursor(own, row_factory=tuple_row)
        plain(cursor.adapters)
        cursor.execute(sql.encode(), args or None, binary=True)
        return cursor.fetchall() if cursor.description else []
