"""`bide worker MODULE:QUEUE`: what it finds, what it says first, what it refuses, and with which exit code it ends."""

import importlib
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import bide
from bide import Queue, Worker
from bide.cli import main
from bide.cli.worker.load import WorkerOptions
from bide.cli.worker.run import print_banner
from bide.ids import exact_version
from tests.worker.processes import Shop, open_shop

HANDLERS = """
@queue.task("mail")
async def mail():
    say("mail")

@queue.task("pack")
def pack():
    say("pack", threading.current_thread().name)

made = Worker(queue, topics=["mail"], concurrency=7, lease="3s", grace="4s", threads=2)
number = 42
"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with open_shop(tmp_path) as made:
        yield made


def said_at_first(shop: Shop, *arguments: str, target: str = "shop:queue") -> str:
    worker = shop.ready(*arguments, target=target)
    code, _ = worker.stop()
    assert code == 0, worker.err
    return worker.err


def test_it_calls_the_tasks_and_ends_with_0(shop: Shop) -> None:
    shop.write(HANDLERS)
    shop.queue.send("mail")
    shop.queue.send("pack")
    worker = shop.start()
    [line] = shop.said("pack")
    assert line.words[1].startswith("bide-handler")
    shop.empty()
    code, _ = worker.stop()
    assert code == 0
    assert len(shop.lines("mail")) == 1


def test_the_banner_tells_where_how_and_what_for(shop: Shop) -> None:
    shop.write(HANDLERS)
    first = said_at_first(shop)
    assert first.startswith(f"bide {exact_version(bide.__version__)} worker\n")
    assert f"engine   sqlite:///{shop.folder}/shop.db, namespace bide" in first
    assert "this process with 100 concurrent handlers, 32 of them in threads; lease 15 s, grace 20 s" in first
    assert "  mail  →  shop.mail\n" in first
    assert "  pack  →  shop.pack (in a thread)\n" in first


COLLECTS = """
import gc
@queue.task("mail")
async def mail():
    say("mail", gc.get_threshold()[0], gc.get_freeze_count())
"""


@pytest.mark.parametrize("options", [(), ("--processes", "1")], ids=["alone", "processes"])
def test_it_says_which_timeouts_it_cannot_enforce(shop: Shop, options: tuple[str, ...]) -> None:
    shop.write(
        HANDLERS
        + "\n@queue.task('slow', timeout='1s')\ndef slow(): ...\n\n@queue.task('soon', timeout='1s')\nasync def soon(): ...\n"
    )
    worker = shop.ready(*options)
    assert worker.stop()[0] == 0
    assert ("timeout= can't stop the threads of slow: " in worker.err) is (not options)


def test_garbage_is_collected_less_often_than_elsewhere(shop: Shop) -> None:
    shop.write(COLLECTS)
    shop.queue.send("mail")
    worker = shop.start()
    [line] = shop.said("mail")
    assert line.words[1] == 2_000
    assert line.words[2] > 10_000  # of what was imported
    assert worker.stop()[0] == 0


@pytest.mark.parametrize("often", [0, 300])
def test_a_program_that_has_settled_how_often_it_collects_garbage_is_left_alone(shop: Shop, often: int) -> None:
    shop.write(COLLECTS + f"gc.set_threshold({often}, 5, 5)\n")
    shop.queue.send("mail")
    worker = shop.start()
    [line] = shop.said("mail")
    assert line.words[1] == often
    assert worker.stop()[0] == 0


def test_a_relative_file_is_shown_with_its_whole_path(shop: Shop) -> None:
    shop.write("queue = AsyncQueue('sqlite:///here.db')\n" + HANDLERS)
    assert f"sqlite:///{shop.folder}/here.db" in said_at_first(shop)


def test_the_banner_counts_one_as_one(shop: Shop) -> None:
    shop.write(HANDLERS)
    first = said_at_first(shop, "--processes", "1", "--concurrency", "2", "--slots", "mail=1")
    assert "limits   1 process with 2 concurrent handlers, 2 of them in threads" in first
    assert "  mail  →  shop.mail, 1 slot reserved\n" in first


def test_options_change_what_the_banner_tells(shop: Shop) -> None:
    shop.write(HANDLERS)
    first = said_at_first(
        shop,
        "--concurrency",
        "9",
        "--threads",
        "3",
        "--lease",
        "2s",
        "--grace",
        "1500ms",
        "--slots",
        "mail=4",
        "--slots",
        "pack=2",
    )
    assert "9 concurrent handlers, 3 of them in threads; lease 2 s, grace 1.5 s" in first
    assert "  mail  →  shop.mail, 4 slots reserved\n" in first
    assert "  pack  →  shop.pack (in a thread), 2 slots reserved\n" in first


def test_a_password_is_never_shown(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    with Queue("memory://") as queue:

        @queue.task("mail")
        def mail() -> None: ...

        worker = Worker(queue)
        worker.queue.session.setup.source.__dict__["shown"] = "redis://:secret@there/0?password=secret"
        print_banner(WorkerOptions("shop:queue"), worker)
    shown = capsys.readouterr().err
    assert "there/0" in shown
    assert "secret" not in shown


def test_topics_are_served_and_no_others(shop: Shop) -> None:
    shop.write(HANDLERS)
    shop.queue.send("mail")
    shop.queue.send("pack")
    worker = shop.start("--topics", "pack")
    shop.said("pack")
    assert "mail" not in worker.err
    assert worker.stop()[0] == 0
    assert shop.counts("mail").ready == 1


def test_topics_may_be_given_together(shop: Shop) -> None:
    shop.write(HANDLERS)
    first = said_at_first(shop, "--topics", "pack,mail")
    assert "  mail  →" in first
    assert "  pack  →" in first


def test_a_number_alone_is_seconds(shop: Shop) -> None:
    shop.write(HANDLERS)
    assert "lease 2 s, grace 0.5 s" in said_at_first(shop, "--lease", "2", "--grace", "0.5", "--processes", "1")


def test_import_brings_the_tasks_of_other_modules(shop: Shop) -> None:
    shop.write("")
    shop.write("from shop import queue, say\n@queue.task('letters')\ndef letters(): say('letters')\n", "letters", head=False)
    shop.queue.send("letters")
    worker = shop.start("--import", "letters")
    shop.said("letters")
    assert worker.stop()[0] == 0


def test_a_worker_made_in_code_keeps_what_the_command_line_does_not_say(shop: Shop) -> None:
    shop.write(HANDLERS)
    first = said_at_first(shop, "--concurrency", "5", target="shop:made")
    assert "5 concurrent handlers, 2 of them in threads; lease 3 s, grace 4 s" in first
    assert "mail" in first
    assert "pack" not in first


def test_a_queue_inside_something_is_found(shop: Shop) -> None:
    shop.write(HANDLERS + "class Site: pass\nsite = Site()\nsite.queue = queue\n")
    assert "shop.mail" in said_at_first(shop, target="shop:site.queue")


@pytest.fixture
def here(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """The command can be run in this process: what it imports is forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.chdir(shop.folder)
    monkeypatch.setattr(sys, "path", [str(shop.folder), *sys.path])
    importlib.invalidate_caches()
    yield shop
    for name in {"shop", "idle", "empty", "broken"} & (set(sys.modules) - before):
        del sys.modules[name]


@pytest.mark.parametrize(
    ("target", "arguments", "code", "said"),
    [
        ("shop", (), 1, "bide: 'shop' is not MODULE:QUEUE, as in shop.tasks:queue."),
        ("nowhere:queue", (), 1, "bide: There is no module nowhere in this folder ("),
        ("nowhere.tasks:queue", (), 1, "bide: There is no module nowhere.tasks in this folder ("),
        ("shop:qeue", (), 1, "bide: The module shop has no attribute qeue. It has: made, queue."),
        ("shop:number", (), 1, "bide: shop:number is of type int. Give a Queue, an AsyncQueue or a Worker."),
        ("empty:queue", (), 1, "bide: The module empty has no attribute queue. It has no queue."),
        (
            "idle:queue",
            (),
            1,
            "bide: This queue has no tasks: write @queue.task() above a function, and import its module first.",
        ),
        ("shop:queue", ("--topics", "nope"), 1, "bide: There is no task for nope. There is one for: mail, pack."),
        ("shop:queue", ("--import", "nowhere"), 1, "bide: There is no module nowhere in this folder ("),
        ("shop:queue", ("--slots", "mail"), 2, "'mail' is not TOPIC=NUMBER"),
        ("shop:queue", ("--grace", "soon"), 2, "'soon' is not a duration."),
        ("shop:queue", ("--topics", "mail,nope"), 1, "bide: There is no task for nope."),
        ("shop:queue", ("--topics", "mail,"), 1, "The topic is ''."),
        ("shop:queue", ("--health", "8080"), 2, "For a port write :8080, for a file ./8080."),
        ("shop:queue", ("--health", ":65536"), 2, "There is no port 65536"),
        ("shop:queue", ("--lease", "0s"), 1, "lease is 0 ms."),
        ("shop:queue", ("--concurrency", "0"), 1, "concurrency"),
        ("shop:queue", ("--processes", "0"), 2, "--processes"),
        ("shop:queue", ("--log-level", "loud"), 2, "--log-level"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(
    here: Shop, target: str, arguments: tuple[str, ...], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    here.write(HANDLERS)
    here.write("", "idle")
    here.write("", "empty", head=False)
    ended = main(["worker", target, *arguments])
    err = capsys.readouterr().err
    assert said in err
    assert err.startswith("bide")
    assert ended == code


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--slots", "nope=3"), 1, "slots keeps places for 'nope', which this worker does not serve"),
        (("--slots", "mail=100"), 1, "leave at least one for the other topics"),
        (("--slots", "mail=0"), 1, "slots['mail']"),
        (("--health", "/no/such/folder/file"), 2, "There is no folder /no/such/folder for the file."),
    ],
)
def test_so_is_what_does_not_fit_the_tasks_or_the_machine(shop: Shop, arguments: tuple[str, ...], code: int, said: str) -> None:
    shop.write(HANDLERS)
    for more in ((), ("--processes", "1")):
        ended, err = shop.ended(*arguments, *more)
        assert said in err
        assert ended == code
        assert "Traceback" not in err
        assert "→" not in err  # the banner


@pytest.mark.parametrize("target", ["broken:queue", "shop:queue"])
def test_a_module_that_fails_to_import_is_shown_with_its_traceback(shop: Shop, target: str) -> None:
    shop.write(HANDLERS)
    shop.write("import not_installed_anywhere\n", "broken", head=False)
    code, err = shop.ended(*(() if target == "broken:queue" else ("--import", "broken")), target=target)
    assert code == 1
    assert "Traceback" in err
    assert "broken.py" in err
    assert "not_installed_anywhere" in err


@pytest.mark.parametrize("code", ["0", "5", "'no licence'"])
@pytest.mark.parametrize("more", [(), ("--processes", "2")], ids=["alone", "processes"])
def test_a_module_that_ends_the_program_is_named(shop: Shop, code: str, more: tuple[str, ...]) -> None:
    """Whatever it ends with: an exit code of 0 would tell systemd that all is well."""
    shop.write(f"import sys\nsys.exit({code})\n", "broken", head=False)
    ended, err = shop.ended(*more, target="broken:queue")
    assert ended == 1
    assert f"bide: The module broken has ended the program while it was imported, by sys.exit({code}): " in err
    assert 'broken.py", line 2' in err


def test_a_queue_that_ends_the_program_when_it_is_read_is_named(shop: Shop) -> None:
    shop.write("import sys\n\ndef __getattr__(name):\n    sys.exit(0)\n", "broken", head=False)
    ended, err = shop.ended(target="broken:made.queue")
    assert ended == 1
    assert "bide: broken:made.queue has ended the program while it was read, by sys.exit(0): " in err
    assert 'broken.py", line 4' in err


def test_modules_of_import_come_first_since_they_may_set_something_up(shop: Shop) -> None:
    shop.write("import os\nos.environ['SET_UP'] = 'yes'\n", "setup", head=False)
    shop.write("import os\nassert os.environ['SET_UP'] == 'yes'\n" + HANDLERS)
    assert "→" in said_at_first(shop, "--import", "setup")


@pytest.mark.parametrize("name", ["AppRegistryNotReady", "ImproperlyConfigured"])
def test_a_module_that_needs_django_says_how_it_is_set_up(shop: Shop, name: str) -> None:
    (shop.folder / "django").mkdir()
    shop.write("", "django/__init__", head=False)
    shop.write(f"class {name}(Exception):\n    pass\n", "django/exceptions", head=False)
    shop.write(f"from django.exceptions import {name}\nraise {name}('settings')\n", "broken", head=False)
    code, err = shop.ended(target="broken:queue")
    assert code == 1
    assert f"{name}: settings" in err
    assert "bide: Django is not set up when broken is imported. Give a module that calls django.setup()" in err


def test_processes_that_share_no_queue_are_refused(shop: Shop) -> None:
    shop.write("import bide\nqueue = bide.Queue('memory://')\n@queue.task('a')\ndef a(): ...\n", "alone", head=False)
    code, err = shop.ended("--processes", "2", target="alone:queue")
    assert code == 1
    assert "bide: memory:// keeps its messages in one process, so each of --processes would have a queue of its own" in err


def test_an_error_in_a_module_is_shown_without_the_frames_of_the_command(shop: Shop) -> None:
    shop.write("def deep():\n    raise LookupError('no such setting')\n", "settings", head=False)
    shop.write("from settings import deep\ndeep()\n", "broken", head=False)
    code, err = shop.ended(target="broken:queue")
    assert code == 1
    first, *frames, last = err.strip().splitlines()
    assert first == "Traceback (most recent call last):"
    assert last == "LookupError: no such setting"
    assert [line.split('"')[1].rpartition("/")[2] for line in frames if "File" in line] == ["broken.py", "settings.py"]


def test_a_file_is_no_module(shop: Shop) -> None:
    shop.write(HANDLERS)
    for target in ("./shop.py:queue", "shop.py:queue", "folder/shop:queue"):
        code, err = shop.ended(target=target)
        assert (code, err.count("\n")) == (1, 1)
        assert "bide worker shop:queue" in err


def test_so_is_one_that_can_not_open_a_file(shop: Shop) -> None:
    shop.write(HANDLERS + "open('/no/such/file')\n")
    code, err = shop.ended()
    assert code == 1
    assert "Traceback" in err
    assert "open('/no/such/file')" in err
    assert "bide: " not in err


def test_a_file_that_is_no_queue_ends_it_with_1_and_is_left_alone(shop: Shop) -> None:
    shop.write(HANDLERS)
    connection = sqlite3.connect(shop.folder / "shop.db")
    connection.execute("create table orders (number integer)")
    connection.close()
    code, err = shop.ended()
    assert code == 1
    assert "bide: " in err
    assert "Traceback" not in err


@pytest.mark.parametrize("options", [(), ("--processes", "1")], ids=["alone", "supervised"])
def test_an_engine_that_cannot_be_reached_is_waited_for_and_can_be_stopped(shop: Shop, options: tuple[str, ...]) -> None:
    shop.write("queue = AsyncQueue('sqlite:////proc/no/such/folder/shop.db')\n" + HANDLERS)
    worker = shop.start(*options)
    worker.until("can't reach the engine and goes on trying")
    assert worker.stop()[0] == 0


def test_handlers_find_a_sync_queue_too(shop: Shop) -> None:
    shop.write("queue = Queue(queue.session.setup.source.shown)\n" + HANDLERS)
    shop.queue.send("mail")
    worker = shop.start()
    shop.said("mail")
    assert worker.stop()[0] == 0
