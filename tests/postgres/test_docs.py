"""What the docs show of PostgreSQL works: the blocks behind `<!-- run with PostgreSQL -->`."""

import re
from pathlib import Path

import psycopg
import pytest

from bide import Queue

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^<!-- run with PostgreSQL -->\n+```(?P<language>\w+)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)
IN_THE_DOCS = "postgres://shop:secret@localhost:5432/shop"


def blocks(language: str) -> list[tuple[str, str]]:
    pages = sorted((ROOT / "docs").glob("*.md"))
    found = [(page.name, each) for page in pages for each in BLOCK.finditer(page.read_text(encoding="utf-8"))]
    return [(name, each["code"]) for name, each in found if each["language"] == language]


@pytest.mark.parametrize(("page", "code"), blocks("python"))
def test_a_script_in_the_docs_runs(page: str, code: str, postgres_url: str) -> None:
    assert IN_THE_DOCS in code
    exec(compile(code.replace(IN_THE_DOCS, postgres_url.partition("?")[0]), page, "exec"), {"__name__": "docs"})


def test_the_rights_in_the_docs_are_all_that_their_users_need(postgres_url: str) -> None:
    url = postgres_url.partition("?")[0]
    with Queue(url) as queue:
        queue.send("t")
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute("create role shop login")
        owner.execute("create role sender login")
        for _, code in blocks("sql"):
            owner.execute(code.encode())
        owner.execute("create table bide.later (id bigserial)")
    with Queue(url.replace("postgres@", "shop@")) as queue:
        queue.send("t")
        for delivery in queue.receive("t", limit=2):
            delivery.ack()
        assert queue.stats().ready == 0
    with psycopg.connect(url.replace("postgres@", "shop@")) as shop:
        shop.execute("insert into bide.later default values")
    with psycopg.connect(url.replace("postgres@", "sender@")) as sender:
        sender.execute("select bide.send('order.cancel', '{\"order\": 42}', key => 'order:42')")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            sender.execute("select * from bide.dead")
