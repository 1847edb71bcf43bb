"""The outboxes with SQLAlchemy and Django: real processes, on a real PostgreSQL server."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bide import Queue
from tests.examples.running import ROOT, processes, soon

SHOPS = {
    "sqlalchemy": ("examples.sqlalchemy_shop.app:app", "examples.sqlalchemy_shop.tasks:queue", "orders"),
    "django": ("examples.django_shop.asgi:application", "examples.django_shop.worker:queue", "django_shop_order"),
}


@pytest.mark.parametrize("which", SHOPS)
def test_an_order_is_packed_once_and_one_that_was_rolled_back_never(which: str, postgres_url: str, tmp_path: Path) -> None:
    app, worker, table = SHOPS[which]
    if which == "django":
        command = [sys.executable, "-m", "examples.django_shop.manage", "migrate", "--run-syncdb", "--verbosity", "0"]
        subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, "SHOP_URL": postgres_url})
    with processes(tmp_path, SHOP_URL=postgres_url) as running, Queue(postgres_url) as queue:
        server = running.start("uvicorn", app, "--port", "0", *(["--lifespan", "off"] if which == "django" else []))
        client = running.client(server)
        orders = []
        for card in ("refused", "good", "refused", "good"):
            answer = client.post("/orders", json={"email": "ada@example.com", "card": card})
            assert answer.status_code == (402 if card == "refused" else 201)
            if card == "good":
                orders.append(answer.json()["order"])
        assert [each.body for each in queue.messages("order.pack")] == [{"order": order} for order in orders]

        killed = running.start("bide", "worker", worker, "--lease", "1s")
        assert soon(lambda: packed(client, orders[0]))
        killed.kill()
        orders.append(client.post("/orders", json={"email": "ada@example.com", "card": "good"}).json()["order"])
        working = running.start("bide", "worker", worker, "--lease", "1s")
        assert soon(lambda: all(packed(client, order) for order in orders))
        assert soon(lambda: queue.stats().pending + queue.stats().leased == 0)
        working.stop()
    with psycopg.connect(postgres_url) as connection:
        found = connection.execute(f"select id, packed from {table} order by id".encode()).fetchall()
        assert found == [(order, 1) for order in orders]


def packed(client: Any, order: int) -> bool:
    told = client.get(f"/orders/{order}").raise_for_status().json()
    return bool(told["packed"])
