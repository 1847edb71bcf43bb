"""What a worker logs: lines for people, or one JSON object a line."""

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bide.cli.worker.log import JsonFormatter, Text
from tests.worker.processes import Running, Shop, open_shop, until

HANDLERS = r"""
import logging, warnings

@queue.task("fails")
async def fails():
    raise ValueError("no such order\n\x1b[31mred\u202e")

@queue.task("odd")
def odd():
    raise OSError("a name that is no text: \udc80")

@queue.task("says")
def says():
    logging.getLogger("shop").info("two\nlines %s", "\x1b[2J")
    logging.getLogger("shop").debug("quiet")
    say("says")

@queue.task("leaves")
async def leaves():
    async def forgotten():
        raise RuntimeError("nobody looks")
    asyncio.create_task(forgotten())
    warnings.warn("old ways")
    threading.Thread(target=lambda: 1 / 0).start()
    await asyncio.sleep(0.05)
    say("leaves")
"""


SPANS = r"""
from opentelemetry import trace

@queue.task("traced")
async def traced():
    span = trace.NonRecordingSpan(trace.SpanContext(0xab, 0xcd, is_remote=False))
    with trace.use_span(span):
        logging.getLogger("shop").info("inside")
    logging.getLogger("shop").info("outside")
    say("traced")
"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with open_shop(tmp_path) as made:
        made.write(HANDLERS)
        yield made


def objects(worker: Running) -> list[dict[str, Any]]:
    """Each line after the banner."""
    lines = worker.err.splitlines()
    last = max(number for number, line in enumerate(lines) if "  →  " in line)
    return [json.loads(line) for line in lines[last + 1 :]]


@pytest.mark.parametrize("options", [(), ("--processes", "1")], ids=["alone", "supervised"])
def test_every_line_of_json_is_an_object_that_says_what_it_is_about(shop: Shop, options: tuple[str, ...]) -> None:
    sent = {topic: shop.queue.send(topic, max_attempts=1).id for topic in ("fails", "odd", "says", "leaves")}
    worker = shop.start("--log-format", "json", *options)
    shop.said("says")
    shop.said("leaves")
    shop.dead("fails")
    shop.dead("odd")
    assert worker.stop()[0] == 0
    told = objects(worker)
    for each in told:
        assert list(each)[:5] == ["time", "level", "logger", "process", "message"]
    [failed] = [each for each in told if each.get("topic") == "fails"]
    assert (failed["message_id"], failed["attempt"], failed["level"]) == (sent["fails"], 1, "error")
    assert "ValueError: no such order\n\x1b[31mred" in failed["traceback"]
    assert "in fails" in failed["traceback"]
    [odd] = [each for each in told if each.get("topic") == "odd"]
    assert "a name that is no text" in odd["traceback"]
    assert any("old ways" in each["message"] for each in told)
    assert any("ZeroDivisionError" in each["message"] for each in told)
    assert any("nobody looks" in each.get("traceback", "") for each in told)
    [said] = [each for each in told if each["logger"] == "shop"]
    assert (said["message"], said["level"]) == ("two\nlines \x1b[2J", "info")
    assert "\x1b" not in worker.err
    assert "\u202e" not in worker.err


def test_text_is_a_line_each_and_moves_no_cursor(shop: Shop) -> None:
    shop.queue.send("says")
    worker = shop.start()
    shop.said("says")
    assert worker.stop()[0] == 0
    [line] = [line for line in worker.err.splitlines() if "two" in line]
    assert line.endswith(f"INFO    {worker.pid} shop: two\\u000alines \\u001b[2J")


@pytest.mark.parametrize(("level", "seen"), [("debug", True), ("info", False)])
def test_the_level_decides_what_is_worth_a_line(shop: Shop, level: str, seen: bool) -> None:
    shop.queue.send("says")
    worker = shop.start("--log-level", level)
    shop.said("says")
    assert worker.stop()[0] == 0
    assert ("quiet" in worker.err) is seen


OWN = "logging.basicConfig(format='MINE %(message)s', level='INFO', stream=sys.stderr)\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), None),
        (("--log-format", "json"), "--log-format json is left out."),
        (("--log-level", "debug"), "--log-level debug is left out."),
        (
            ("--log-format", "json", "--log-level", "error", "--processes", "1"),
            "--log-format json and --log-level error are left out.",
        ),
    ],
    ids=["nothing asked", "json", "a level", "both, supervised"],
)
def test_a_module_that_logs_its_own_way_is_left_alone(shop: Shop, options: tuple[str, ...], said: str | None) -> None:
    """Whatever is asked for; then the command says once what it leaves out."""
    shop.write(HANDLERS + OWN)
    shop.queue.send("says")
    worker = shop.start(*options)
    shop.said("says")
    assert worker.stop()[0] == 0
    assert "MINE two" in worker.err
    assert "MINE The worker has stopped" in worker.err
    told = [line for line in worker.err.splitlines() if "has set up logging itself" in line]
    assert told == ([] if said is None else [f"bide: your program has set up logging itself, so {said}"])


def test_a_configuration_that_does_not_name_bide_does_not_silence_the_worker(shop: Shop) -> None:
    """By default, dictConfig() disables all loggers that are there and that it does not name."""
    shop.write(
        HANDLERS
        + """
import logging.config
console = {"class": "logging.StreamHandler", "formatter": "own"}
own = {"format": "MINE %(message)s"}
root = {"handlers": ["console"], "level": "INFO"}
logging.config.dictConfig({"version": 1, "formatters": {"own": own}, "handlers": {"console": console}, "root": root})
"""
    )
    shop.queue.send("says")
    worker = shop.start()
    shop.said("says")
    assert worker.stop()[0] == 0
    assert "MINE The worker has stopped" in worker.err


def test_what_modules_log_while_they_are_imported_is_json_too(shop: Shop) -> None:
    shop.write(HANDLERS + "logging.getLogger('shop').warning('early')\n")
    shop.queue.send("says")
    worker = shop.start("--log-format", "json")
    shop.said("says")
    assert worker.stop()[0] == 0
    [early] = [line for line in worker.err.splitlines() if "early" in line]
    assert json.loads(early)["message"] == "early"


def test_messages_without_a_handler_are_named(shop: Shop) -> None:
    shop.queue.send("nobodys")
    worker = shop.start()
    until(lambda: "1 message of nobodys is due and no task here is for them" in worker.err)
    assert worker.stop()[0] == 0


@pytest.mark.parametrize("options", [(), ("--processes", "1")], ids=["alone", "supervised"])
def test_lines_in_a_span_of_opentelemetry_have_its_ids(shop: Shop, options: tuple[str, ...]) -> None:
    shop.write(HANDLERS + SPANS)
    shop.queue.send("traced")
    worker = shop.start("--log-format", "json", *options)
    shop.said("traced")
    assert worker.stop()[0] == 0
    told = {each["message"]: each for each in objects(worker)}
    inside = told["inside"]
    assert (inside["trace_id"], inside["span_id"]) == ("0" * 30 + "ab", "0" * 14 + "cd")
    assert not {"trace_id", "span_id"} & told["outside"].keys()


def test_opentelemetry_is_not_imported_for_the_log(shop: Shop) -> None:
    shop.write("""
@queue.task("looks")
async def looks():
    say("looks", "opentelemetry" in sys.modules)
""")
    shop.queue.send("looks")
    worker = shop.start("--log-format", "json")
    [line] = shop.said("looks")
    assert worker.stop()[0] == 0
    assert line.words == ("looks", False)


def record(message: str, error: BaseException | None = None) -> logging.LogRecord:
    exc_info = None if error is None else (type(error), error, None)
    return logging.LogRecord("shop", logging.ERROR, "shop.py", 1, message, (), exc_info)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(object(), None), ({1: object()}, None), (b"x", None), ([object(), "a"], ["a"]), ("\udc80", "\\udc80"), (1.5, 1.5)],
)
def test_an_attribute_of_the_programs_own_makes_no_line_unreadable(value: object, shown: object) -> None:
    said = record("said")
    said.topic = value
    told = json.loads(JsonFormatter().format(said))
    assert (told["message"], told.get("topic")) == ("said", shown)


def test_a_line_whose_arguments_do_not_fit_and_whose_logger_has_half_a_character_is_json() -> None:
    said = logging.LogRecord("shop\udc80", logging.ERROR, "shop.py", 1, "%d of %s", ("x",), None)
    told = json.loads(JsonFormatter().format(said))
    assert told["logger"] == "shop\\udc80"
    assert told["message"].startswith("'%d of %s' with the arguments ('x',): TypeError: ")


@pytest.mark.parametrize("text", ["\udc80", "\x00", "\u2028", "\x1b]0;title\x07", "Grüße 🎁", "\u202e", 'a "quote" \\'])
def test_json_of_any_text_is_one_line_that_can_be_read(text: str) -> None:
    line = JsonFormatter().format(record(text, ValueError(text)))
    assert line.isprintable()
    told = json.loads(line)
    shown = text.replace("\udc80", "\\udc80")
    assert told["message"] == shown
    assert shown in told["traceback"]
    line.encode()


@pytest.mark.parametrize("text", ["\udc80", "\x00", "\u2028", "\x1b]0;title\x07", "\u202e"])
def test_text_of_any_text_shows_nothing_that_moves_the_cursor(text: str) -> None:
    line = Text().format(record(text, ValueError(text)))
    assert all(part.isprintable() for part in line.split("\n"))
    line.encode(sys.stderr.encoding or "utf-8", "strict")
