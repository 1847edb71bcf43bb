"""How much of an index a query of PostgreSQL reads."""

from typing import Any

import psycopg


def read(client: psycopg.Connection[Any], index: str, query: str, *values: object) -> int:
    """How many entries of an index a query reads. What it changes is undone."""
    before = counted(client, index)
    client.execute(query.encode(), values)
    after = counted(client, index)
    client.rollback()
    return after - before


def counted(client: psycopg.Connection[Any], index: str) -> int:
    [[found]] = client.execute("select pg_stat_get_xact_tuples_returned(%s::regclass)", [f"bide.{index}"]).fetchall()
    return int(found)
