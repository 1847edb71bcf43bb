"""A page that is edited again and again is indexed once, when it has been left alone for 2 seconds."""

from benchmarks.recipes.shop import prepare, seconds, transaction
from benchmarks.recipes.with_celery.app import app

QUIET_FOR = seconds("QUIET_FOR", 2)


def edit(page: int, text: str) -> None:
    with transaction() as db:
        change = "insert into pages values (?, ?, 1) on conflict do update set text = excluded.text, version = version + 1"
        db.execute(change, [page, text])
        [version] = db.execute("select version from pages where id = ?", [page]).fetchone()
    index.apply_async([page, version], countdown=QUIET_FOR)  # a task an edit; all but the last find another version


@app.task(name="search.index")
def index(page: int, edited: int) -> None:
    with transaction() as db:
        text, version = db.execute("select text, version from pages where id = ?", [page]).fetchone()
    if version == edited:
        write(page, text, version)


def write(page: int, text: str, version: int) -> None:
    with transaction() as db:
        newer = "on conflict do update set text = excluded.text, version = excluded.version where version < excluded.version"
        if db.execute(f"insert into search values (?, ?, ?) {newer}", [page, text, version]).rowcount:
            print(f"page {page}, version {version}, is indexed: {text}")


if __name__ == "__main__":
    prepare()
    for text in ("H", "He", "Hello"):
        edit(1, text)
