"""What the recipes of Celery and Dramatiq share: the tables of the recipes, with the columns that they need besides."""

import os
import sqlite3
from contextlib import closing, suppress

from examples.recipes import database
from examples.recipes.database import transaction

COLUMNS = ("orders add due real", "users add due real", "users add seen real", "groups add due real", "devices add on_at real",
           "devices add off_at real")  # fmt: skip
REDIS = os.environ.get("REDIS_URL", "redis://localhost:6379/0")

__all__ = ["REDIS", "milliseconds", "prepare", "seconds", "transaction"]


def seconds(name: str, usual: float) -> float:
    """A setting, as bide reads it: 1.5s."""
    return float(os.environ.get(name, str(usual)).removesuffix("s"))


def prepare() -> None:
    database.create_tables()
    with closing(sqlite3.connect(database.PATH)) as connection:
        for column in COLUMNS:
            with suppress(sqlite3.OperationalError):  # it is there
                connection.execute(f"alter table {column}")


def milliseconds(name: str, usual: float) -> int:
    return int(seconds(name, usual) * 1000)
