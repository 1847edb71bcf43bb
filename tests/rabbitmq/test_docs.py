"""What the docs show of RabbitMQ works: the blocks behind `<!-- run with RabbitMQ -->`, the rights, and the numbers."""

import asyncio
import json
import re
import shlex
from pathlib import Path
from typing import Any

import aiormq
import pytest

from bide import Queue, Worker
from bide.engines.rabbitmq.ladder import STEPS, QueueNames, routing_key
from bide.engines.rabbitmq.location import _OPTIONS, _TLS
from tests.servers.rabbitmq import TUNED, RabbitServer
from tests.servers.rabbitmq_hosts import name_in

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^<!-- run with RabbitMQ -->\n+```python\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)
IN_THE_DOCS = "amqp://shop:secret@localhost:5672/shop"
RELAY = "# relay.py"
PAGE = (ROOT / "docs" / "rabbitmq.md").read_text(encoding="utf-8")


def blocks() -> list[tuple[str, str]]:
    pages = sorted((ROOT / "docs").glob("*.md"))
    return [(page.name, each["code"]) for page in pages for each in BLOCK.finditer(page.read_text(encoding="utf-8"))]


SCRIPTS = [(page, code) for page, code in blocks() if not code.startswith(RELAY)]


def run(page: str, code: str, url: str) -> dict[str, Any]:
    """What the block defines."""
    assert IN_THE_DOCS in code
    namespace: dict[str, Any] = {"__name__": "docs"}
    exec(compile(code.replace(IN_THE_DOCS, url), page, "exec"), namespace)
    return namespace


@pytest.mark.parametrize(("page", "code"), SCRIPTS, ids=[f"{page}-{place}" for place, (page, _) in enumerate(SCRIPTS)])
def test_a_script_in_the_docs_runs(page: str, code: str, rabbitmq_shared_url: str) -> None:
    run(page, code, rabbitmq_shared_url)


async def test_the_relay_in_the_docs_hands_on_what_is_due(rabbitmq_url: str) -> None:
    [(page, code)] = [(page, code) for page, code in blocks() if code.startswith(RELAY)]
    defined = run(page, code, rabbitmq_url)
    queue, relay = defined["queue"], defined["relay"]
    arrived: asyncio.Queue[bytes] = asyncio.Queue()
    async with aiormq.connect(rabbitmq_url) as old, queue:
        channel = await old.channel()
        await channel.queue_declare("orders.cancel", durable=True)
        await channel.basic_consume("orders.cancel", lambda message: arrived.put(message.body), no_ack=True)
        await relay.after("20ms").send(to="orders.cancel", body={"order": 42})
        async with Worker(queue):
            assert json.loads(await arrived.get()) == {"order": 42}
    await defined["connection"].close()


def test_the_rights_in_the_docs_are_enough(rabbitmq_server: RabbitServer, rabbitmq_url: str) -> None:
    [add] = re.findall(r"^rabbitmqctl (add_user .*)$", PAGE, re.MULTILINE)
    [grant] = re.findall(r"^rabbitmqctl (set_permissions .*)$", PAGE, re.MULTILINE)
    rabbitmq_server.ctl(*shlex.split(add))
    try:
        command, p, _, *rest = shlex.split(grant)
        rabbitmq_server.ctl(command, p, name_in(rabbitmq_url), *rest)
        url = rabbitmq_url.replace("guest:guest", "shop:secret")
        with Queue(url) as queue:
            queue.send("t", "later", delay="20ms", max_attempts=1)
            [delivery] = queue.receive("t", wait="60s")
            delivery.retry()  # its last attempt
            assert [each.body for each in queue.messages("t", state="dead")] == ["later"]
            assert queue.requeue("t")
            [delivery] = queue.receive("t", wait="60s")
            delivery.ack()
    finally:
        rabbitmq_server.ctl("delete_user", "shop")


def test_the_route_in_the_docs_is_the_one_that_is_taken() -> None:
    assert f"`{routing_key(20_200, 'mail')}`" in PAGE
    assert f"{len(STEPS)} queues" in PAGE
    names = QueueNames("bide")
    assert f"{len(list(names.bindings())) + len(list(names.arrivals())):,} bindings" in PAGE


def test_the_settings_in_the_docs_are_those_that_the_tests_use() -> None:
    [shown] = re.findall(r"^```erlang\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert re.sub(r"\s", "", shown) == re.sub(r"\s", "", f"[{{rabbit,[{TUNED}]}}].")


def test_the_options_in_the_docs_are_those_that_there_are() -> None:
    rows = re.findall(r"^\| (`.*?) \| .* \| .* \|$", PAGE.partition("## The URL")[2].partition("### Rights")[0], re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == {*_OPTIONS, *_TLS}
