"""The file: how it is named, who may read it, how it is set, and which files are refused."""

import contextlib
import functools
import os
import random
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bide import BadUrl, ConfigError, EngineError, Queue, SchemaMismatch, Unavailable
from bide.engines.sqlite import database, file
from bide.engines.sqlite.file import mounted_as

SENTENCE = r"^\S.*[.?]$"  # what an error of ours reads like
COMPANIONS = ("", "-wal", "-shm")


def pragma(path: Path, name: str) -> Any:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"pragma {name}").fetchone()[0]


def as_it_is(path: Path) -> dict[str, tuple[bytes, int]]:
    """The file and what is beside it, to the byte, and when each was written."""
    return {each.name: (each.read_bytes(), each.stat().st_mtime_ns) for each in path.parent.iterdir()}


def overwrite(path: Path, start: int, data: bytes) -> None:
    with path.open("r+b" if start else "wb") as opened:
        opened.seek(start)
        opened.write(data)


def rest_of(path: Path, start: int) -> bytes:
    return path.read_bytes()[start:]


def size_of(path: Path) -> int:
    return path.stat().st_size


async def refused(queue: Any, kind: type[Exception], match: str = SENTENCE) -> str:
    """Each verb that comes first is refused with a sentence."""
    texts = set()
    for call in (lambda: queue.send("t", 1), lambda: queue.receive("t"), queue.stats):
        with pytest.raises(kind, match=match) as error:
            await call()
        texts.add(str(error.value))
    [text] = texts
    return text


# names


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("sqlite:///one.db", "one.db"),
        ("sqlite:///sub/two.db", "sub/two.db"),
        ("sqlite:///sub/../three.db", "three.db"),
        ("sqlite:///{folder}/four.db", "four.db"),
        ("sqlite:///a name, übel & 100%.db", "a name, übel & 100%.db"),
        ("sqlite:///no-ending", "no-ending"),
    ],
)
async def test_three_slashes_name_a_file_here_and_four_one_from_the_root(
    url: str, name: str, make_queue: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    url = url.format(folder=tmp_path)
    made = make_queue(url)
    monkeypatch.chdir("/")  # where the file is does not depend on where its user goes
    await made.send("t", 1)
    assert (tmp_path / name).is_file()
    assert str(tmp_path / name) in repr(getattr(made, "inner", made))


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///",
        "sqlite://host",
        "sqlite://host/bide.db",
        "sqlite://user:hunter2@host/bide.db",
        "sqlite:bide.db",
        "sqlite:/bide.db",
        "sqlite:///bide.db?mode=ro",
        "sqlite:///bide.db#part",
        "sqlite:///bide\0.db",
        "sqlite:///" + "x" * 5_000,
    ],
)
def test_a_url_that_names_no_file_is_refused_and_none_is_made(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadUrl, match=SENTENCE) as error:
        Queue(url)
    assert "hunter2" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_a_client_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="connection="), closing(sqlite3.connect(":memory:")) as client:
        Queue(url, client=client)


async def test_two_names_of_one_file_are_one_queue(make_queue: Callable[..., Any], path: Path) -> None:
    link = path.with_name("link.db")
    link.symlink_to(path)
    one, two = make_queue(), make_queue(f"sqlite:///{link}")
    await one.send("t", "by its name")
    await two.send("t", "by its link")
    got = [*await one.receive("t", limit=1), *await two.receive("t", limit=9)]
    assert [each.body for each in got] == ["by its name", "by its link"]


# who may read it


def modes(path: Path) -> dict[str, int]:
    return {each.name.removeprefix(path.name): stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}


@pytest.fixture
def umask() -> Iterator[Callable[[int], None]]:
    before = os.umask(0o022)

    def lay(mask: int) -> None:
        os.umask(mask)

    yield lay
    os.umask(before)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077], ids=oct)
async def test_the_file_and_its_companions_are_for_their_user_alone(
    mask: int, queue: Any, path: Path, umask: Callable[[int], None]
) -> None:
    umask(mask)
    await queue.send("t", "secret")
    await queue.stats()
    assert modes(path) == dict.fromkeys(COMPANIONS, 0o600)


def test_a_file_that_is_there_keeps_its_mode_and_its_companions_take_it(url: str, path: Path) -> None:
    path.touch()
    path.chmod(0o660)
    with closing(Queue(url)) as queue:
        queue.send("t", 1)
        assert modes(path) == dict.fromkeys(COMPANIONS, 0o660)


# how it is set


@pytest.fixture
def entered(path: Path) -> Iterator[database.Database]:
    """The file as this process has it open."""
    entered = database.acquire(str(path))
    yield entered
    database.release(entered)


def set_to(connection: sqlite3.Connection | None, name: str) -> Any:
    assert connection is not None
    return connection.execute(f"pragma {name}").fetchone()[0]


async def test_every_connection_is_set(entered: database.Database, queue: Any, path: Path) -> None:
    await queue.send("t", 1)
    await queue.stats()
    writer, reader = entered.writer._connection, entered._reader
    for connection in (writer, reader):
        assert set_to(connection, "journal_mode") == "wal"
        assert set_to(connection, "journal_size_limit") == file.WAL_LIMIT
        assert set_to(connection, "wal_autocheckpoint") == file.PAGES_BETWEEN_CHECKPOINTS
        assert set_to(connection, "auto_vacuum") == 2
        assert set_to(connection, "synchronous") == 2
    assert (set_to(writer, "query_only"), set_to(reader, "query_only")) == (0, 1)


async def test_what_is_accepted_waits_for_the_disk_and_a_lease_need_not(entered: Any, queue: Any, path: Path) -> None:
    def waits() -> bool:
        return bool(set_to(entered.writer._connection, "synchronous") == 2)

    async def took() -> Any:
        return (await queue.receive("t"))[0]

    for number in range(6):
        await queue.send("t", number, key=str(number))
        assert waits()
    for end in ("ack", "retry", "release"):
        delivery = await took()
        assert not waits()
        await getattr(delivery, end)()
        assert waits()
        taken = await took()
        await taken.extend("1m")
        assert not waits()
    verbs: list[Callable[[], Any]] = [
        lambda: queue.cancel(topic="t", key="4"),
        lambda: queue.reschedule(topic="t", key="5", delay=60),
        lambda: queue.requeue("t"),
        lambda: queue.purge("t", state="scheduled"),
        lambda: queue.pause("t"),
        lambda: queue.resume("t"),
    ]
    for verb in verbs:
        await queue.receive("other")
        await verb()
        assert waits()


async def test_every_write_takes_the_lock_before_it_reads(entered: database.Database, queue: Any) -> None:
    statements: list[str] = []
    connection = entered.writer._connection
    assert connection is not None
    connection.set_trace_callback(statements.append)
    await queue.send_many("t", [1, 2, 3])
    for delivery in await queue.receive("t", limit=2):
        await delivery.ack()
    await queue.purge("t", state="ready")
    begun = [each for each in statements if each.lower().startswith("begin")]
    assert set(begun) == {"begin immediate"}
    assert len(begun) == statements.count("commit") >= 5
    inside = False
    for each in statements:
        assert inside or each == "begin immediate" or each.startswith("pragma")
        inside = each != "commit" if each in ("begin immediate", "commit") else inside


async def test_the_file_says_whose_it_is_and_its_layout(queue: Any, path: Path) -> None:
    await queue.send("t", 1)
    assert pragma(path, "application_id").to_bytes(4, "big") == b"bide"
    assert pragma(path, "user_version") == len(file.MIGRATIONS) >= 1
    assert pragma(path, "journal_mode") == "wal"


async def test_a_copy_that_lost_its_mode_gets_it_back(make_queue: Callable[..., Any], path: Path) -> None:
    await make_queue().send("t", "kept")
    copy = path.with_name("copy.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("vacuum into ?", (str(copy),))
    assert pragma(copy, "journal_mode") == "delete"
    restored = make_queue(f"sqlite:///{copy}")
    [delivery] = await restored.receive("t")
    assert delivery.body == "kept"
    assert pragma(copy, "journal_mode") == "wal"


def test_an_empty_file_is_welcome(url: str, path: Path) -> None:
    path.touch()
    with closing(Queue(url)) as queue:
        queue.send("t", 1)
        assert queue.stats("t").ready == 1


# files that are not for us


async def test_a_newer_layout_is_refused_with_a_sentence_and_left_as_it_is(make_queue: Callable[..., Any], path: Path) -> None:
    first = make_queue()
    await first.send("t", 1)
    await first.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma user_version = 99")
    before = as_it_is(path)
    assert "layout 99" in await refused(make_queue(), SchemaMismatch, r"^.*update bide.*\.$")
    assert as_it_is(path) == before


@pytest.mark.parametrize(
    "theirs",
    [
        "create table message (id integer primary key); insert into message values (1)",
        "pragma application_id = 7; create table t (a)",
        "pragma application_id = 7",
        "pragma user_version = 1",
        "pragma journal_mode = wal; create table t (a); insert into t values (1)",
    ],
)
async def test_another_programs_file_is_refused_and_left_as_it_is(theirs: str, queue: Any, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(theirs)
    before = as_it_is(path)
    await refused(queue, SchemaMismatch, r"^.*another program.*\.$")
    assert as_it_is(path) == before


async def test_what_is_not_sqlite_at_all_is_refused_and_left_as_it_is(queue: Any, path: Path) -> None:
    overwrite(path, 0, b"Dear diary, this is no database. " * 200)
    before = as_it_is(path)
    await refused(queue, SchemaMismatch, r"^.*SQLite file.*\.$")
    assert as_it_is(path) == before


async def fill(queue: Any, count: int = 200) -> None:
    await queue.send_many("t", ["x" * 300] * count)
    await queue.close()


async def use(queue: Any) -> None:
    """Meet every page."""
    await queue.stats()
    while deliveries := await queue.receive("t", limit=50):
        await queue.ack_many(deliveries)


async def test_a_damaged_header_is_told_with_a_sentence(make_queue: Callable[..., Any], path: Path) -> None:
    await fill(make_queue())
    overwrite(path, 0, random.Random(1).randbytes(100) + rest_of(path, 100))
    await refused(make_queue(), SchemaMismatch, r"^.*damaged.*recover.*\.$")


@pytest.mark.parametrize("seed", range(4))
async def test_damage_in_the_middle_is_told_with_a_sentence(seed: int, make_queue: Callable[..., Any], path: Path) -> None:
    await fill(make_queue())
    page = pragma(path, "page_size")
    overwrite(path, page, random.Random(seed).randbytes(size_of(path) - page))
    with pytest.raises(SchemaMismatch, match=r"^.*damaged.*recover.*\.$"):
        await use(make_queue())


async def test_half_a_file_is_told_with_a_sentence(make_queue: Callable[..., Any], path: Path) -> None:
    await fill(make_queue())
    os.truncate(path, size_of(path) // 2)
    with pytest.raises(SchemaMismatch, match=r"^.*damaged.*recover.*\.$"):
        await use(make_queue())


# places that will not do


async def test_a_folder_that_is_missing_is_told(make_queue: Callable[..., Any], tmp_path: Path) -> None:
    await refused(make_queue(f"sqlite:///{tmp_path}/nowhere/bide.db"), Unavailable, r"^.*folder.*\.$")
    assert os.listdir(tmp_path) == []


async def test_a_folder_in_place_of_a_file_is_told(make_queue: Callable[..., Any], tmp_path: Path) -> None:
    await refused(make_queue(f"sqlite:///{tmp_path}"), Unavailable)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that a user without rights can reach, as root's own are not."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o777)
    yield folder
    folder.chmod(0o777)
    shutil.rmtree(folder)


WITHOUT_RIGHTS = """
    import asyncio, concurrent.futures.thread, os, sys
    import bide, bide.engines.sqlite, bide.queue
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    def tried(call):
        try:
            call()
        except bide.EngineError as error:
            print(type(error).__name__, error)
        else:
            print("worked")
    queue = bide.Queue(sys.argv[1])
    tried(lambda: queue.send("t", 1))
    tried(lambda: queue.receive("t"))
    queue.close()
    async def main():
        queue = bide.AsyncQueue(sys.argv[1])
        try:
            await queue.send("t", 1)
        finally:
            await queue.close()
    tried(lambda: asyncio.run(main()))
"""


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="this system has other rights")
@pytest.mark.parametrize(
    ("of_file", "of_folder", "with_companions"),
    [(0o444, 0o777, False), (0o444, 0o555, False), (0o666, 0o555, False), (0o444, 0o555, True), (None, 0o555, False)],
    ids=["file", "file and folder", "folder", "file and folder in use", "new file"],
)
def test_what_is_read_only_is_told_and_nothing_is_lost(
    of_file: int | None, of_folder: int, with_companions: bool, open_folder: Path, start: Callable[..., Any]
) -> None:
    path = open_folder / "bide.db"
    url = f"sqlite:///{path}"
    if of_file is not None:
        keeper = Queue(url)
        keeper.send("t", "kept")
        if not with_companions:
            keeper.close()
        for each in open_folder.iterdir():
            each.chmod(of_file)
    open_folder.chmod(of_folder)

    lines = start(WITHOUT_RIGHTS, url).end()

    assert len(lines) == 3
    for line in lines:
        assert line.startswith(f"Unavailable {path} can't be ")
        assert line.endswith((".", "?"))
    open_folder.chmod(0o777)
    if of_file is not None:
        path.chmod(0o666)
        if with_companions:
            keeper.close()
        with closing(Queue(url)) as after:
            [delivery] = after.receive("t", limit=9)
            assert (delivery.body, delivery.attempt) == ("kept", 1)
    else:
        assert list(open_folder.iterdir()) == []


# network mounts

MOUNTS = """\
/dev/vda / ext4 rw,relatime 0 0
proc /proc proc rw 0 0
server:/export /mnt/far nfs4 rw,vers=4.2 0 0
/dev/vdb /mnt/far/near xfs rw 0 0
//server/share /mnt/my\\040share cifs rw 0 0
systemd-1 /net/auto autofs rw 0 0
server:/auto /net/auto nfs rw 0 0
me@host:/ /home/me/host fuse.sshfs rw 0 0
share /media/vm 9p rw 0 0
"""


@pytest.fixture
def mounts(tmp_path: Path) -> str:
    table = tmp_path / "mounts"
    table.write_text(MOUNTS)
    return str(table)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/bide.db", "ext4"),
        ("/mnt/far/bide.db", "nfs4"),
        ("/mnt/far", "nfs4"),
        ("/mnt/farther/bide.db", "ext4"),
        ("/mnt/far/near/bide.db", "xfs"),
        ("/mnt/my share/bide.db", "cifs"),
        ("/net/auto/bide.db", "nfs"),
        ("/home/me/host/x/y/bide.db", "fuse.sshfs"),
        ("/media/vm/bide.db", "9p"),
    ],
)
def test_the_mount_that_holds_a_file_is_found(path: str, kind: str, mounts: str) -> None:
    assert mounted_as(path, mounts) == kind


def test_without_a_table_of_mounts_nothing_is_refused(tmp_path: Path) -> None:
    assert mounted_as(str(tmp_path), str(tmp_path / "none")) is None


async def test_a_network_mount_is_refused_and_nothing_is_made_there(
    make_queue: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far, table = tmp_path / "far", tmp_path / "mounts"
    far.mkdir()
    table.write_text(f"/dev/vda / ext4 rw 0 0\nserver:/x {far} nfs4 rw 0 0\n")
    monkeypatch.setattr(file, "mounted_as", functools.partial(mounted_as, table=str(table)))
    assert "nfs4" in await refused(make_queue(f"sqlite:///{far}/bide.db"), ConfigError, r"^.*local disk.*\.$")
    assert list(far.iterdir()) == []
    (tmp_path / "near").symlink_to(far)  # not even by another name
    await refused(make_queue(f"sqlite:///{tmp_path}/near/bide.db"), ConfigError)
    await make_queue(f"sqlite:///{tmp_path}/bide.db").send("t", 1)


# layouts

OPEN_AT_ONCE = """
    import sys
    import bide, bide.engines.sqlite
    from bide.engines.sqlite import file
    file.MIGRATIONS = (*file.MIGRATIONS, *sys.argv[3:])
    queue = bide.Queue(sys.argv[1])
    print("ready")
    sys.stdin.readline()
    print(queue.send("t", int(sys.argv[2])).outcome)
    queue.close()
"""


def at_once(start: Callable[..., Any], count: int, url: str, *migrations: str) -> None:
    children = [start(OPEN_AT_ONCE, url, number, *migrations) for number in range(count)]
    assert [child.line() for child in children] == ["ready"] * count
    for child in children:
        child.tell()
    assert [child.end() for child in children] == [["created"]] * count


def test_ten_processes_that_open_a_fresh_file_at_once_lay_it_out_once(path: Path, url: str, start: Callable[..., Any]) -> None:
    at_once(start, 10, url)
    with closing(Queue(url)) as queue:
        assert sorted(each.body for each in queue.receive("t", limit=100)) == list(range(10))
    alone = path.with_name("alone.db")
    with closing(Queue(f"sqlite:///{alone}")) as queue:
        queue.send("t", 1)
    for name in ("schema_version", "user_version", "application_id", "auto_vacuum", "journal_mode"):
        assert pragma(path, name) == pragma(alone, name)
    assert pragma(path, "integrity_check") == "ok"


def test_a_file_that_another_process_is_laying_out_is_not_taken_for_a_strangers(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version, asked = file._version, []

    def meanwhile(connection: sqlite3.Connection) -> int:
        """Somebody lays the file out between two questions about it, unless they are one."""
        asked.append(connection)
        if len(asked) == 1:
            with contextlib.suppress(Unavailable):
                file.opened(str(path)).close()
        return version(connection)

    monkeypatch.setattr(file, "PATIENCE", 0.05)
    monkeypatch.setattr(file, "_version", meanwhile)
    file.opened(str(path)).close()
    assert len(asked) > 1


SECOND = "create table extra (one integer);\ninsert into extra values (1);\n"


def test_an_older_layout_is_brought_up_once_by_many_at_once(path: Path, url: str, start: Callable[..., Any]) -> None:
    with closing(Queue(url)) as queue:
        queue.send("t", "from before")
    at_once(start, 5, url, SECOND, "create table third (one);")
    assert pragma(path, "user_version") == len(file.MIGRATIONS) + 2
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("select count(*) from extra").fetchone() == (1,)
        assert connection.execute("select count(*) from message").fetchone() == (6,)
    with closing(Queue(url)) as queue, pytest.raises(SchemaMismatch, match="update bide here"):
        queue.receive("t")


async def test_a_migration_waits_for_the_lock_and_is_all_or_nothing(
    make_queue: Callable[..., Any], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make_queue()
    await first.send("t", "from before")
    await first.close()
    monkeypatch.setattr(file, "PATIENCE", 0.1)
    shipped = file.MIGRATIONS

    monkeypatch.setattr(file, "MIGRATIONS", (*shipped, SECOND))
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("begin immediate")
        with pytest.raises(Unavailable, match="write lock"):
            await make_queue().send("t", 1)
    monkeypatch.setattr(file, "MIGRATIONS", (*shipped, SECOND + "insert into nonsense values (1);\n"))
    with pytest.raises(EngineError, match="nonsense"):
        await make_queue().send("t", 1)
    assert pragma(path, "user_version") == len(shipped)

    monkeypatch.setattr(file, "MIGRATIONS", shipped)
    [delivery] = await make_queue().receive("t", limit=9)
    assert delivery.body == "from before"
    with closing(sqlite3.connect(path)) as connection, pytest.raises(sqlite3.OperationalError, match="no such table"):
        connection.execute("select * from extra")


def test_names_in_the_file_are_those_that_the_docs_keep_from_applications(path: Path) -> None:
    with Queue(f"sqlite:///{path}") as queue, queue.lock("order:42"):
        queue.send("t", 1)
        with closing(sqlite3.connect(path)) as connection:
            names = {name for [name] in connection.execute("select name from sqlite_master")}
    own = {"topic", "message", "large", "operation", "engine"}
    assert {name for name in names - own if not name.startswith(("message_", "operation_", "bide_", "sqlite_"))} == set()
