"""A page that is edited again and again is indexed when it has been left alone for 2 seconds, or after 30 at the latest."""

import os

from bide import Queue
from examples.recipes.database import URL, prepare, transaction

queue = Queue(URL)
QUIET_FOR = os.environ.get("QUIET_FOR", "2s")
AT_LATEST = os.environ.get("AT_LATEST", "30s")


def edit(page: int, text: str) -> None:
    with transaction() as db:
        change = "insert into pages values (?, ?, 1) on conflict do update set text = excluded.text, version = version + 1"
        db.execute(change, [page, text])
        quiet = index.after(QUIET_FOR, key=f"page:{page}", if_exists="later", max_wait=AT_LATEST, connection=db)
        quiet.send(page)


@queue.task("search.index")
def index(page: int) -> None:
    with transaction() as db:  # read when it runs: the last text counts, not the one of the first edit
        text, version = db.execute("select text, version from pages where id = ?", [page]).fetchone()
    write(page, text, version)


def write(page: int, text: str, version: int) -> None:
    """Stands in for the search engine. An older version never overwrites a newer one, whichever worker is slower."""
    with transaction() as db:
        newer = "on conflict do update set text = excluded.text, version = excluded.version where version < excluded.version"
        if db.execute(f"insert into search values (?, ?, ?) {newer}", [page, text, version]).rowcount:
            print(f"page {page}, version {version}, is indexed: {text}")


if __name__ == "__main__":
    prepare(queue)
    for text in ("H", "He", "Hello"):
        edit(1, text)
