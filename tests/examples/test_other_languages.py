"""Messages from redis-cli and Node, as docs/languages.md and an example have them."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from bide import Queue
from tests.cli.running import BIDE
from tests.examples.running import ROOT, processes
from tests.servers.programs import needs_program
from tests.servers.redis import RedisServer

PAGE = (ROOT / "docs" / "languages.md").read_text(encoding="utf-8")
SHOP = ROOT / "examples" / "node_shop"
INSTALLED = ROOT / "build" / "node_shop"  # with ioredis


def program(path: Path, command: str) -> None:
    path.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    path.chmod(0o755)


@pytest.fixture
def run(redis_url: str, redis_server: RedisServer, tmp_path: Path) -> Callable[[str, Path], str]:
    """Runs a command line in a folder, for which the server of the tests is the one at the usual port."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program(folder / "bide", f"{BIDE[0]} -m bide")
    program(folder / "redis-cli", f"{needs_program('redis-cli')} -p {redis_server.port} --no-raw")
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "REDIS_URL": redis_url}

    def run(command: str, where: Path) -> str:
        ended = subprocess.run(["bash", "-c", command], cwd=where, env=environment, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    return run


def test_the_page_sends_with_redis_cli(redis_url: str, run: Callable[[str, Path], str], tmp_path: Path) -> None:
    [block] = re.findall(r"^```console\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    expected, commands = "", []
    for line in block.splitlines(keepends=True):
        if line.startswith("$ "):
            commands.append(line[2:])
        else:
            expected += line
    id, due, outcome = run("".join(commands), tmp_path).splitlines()
    assert re.sub(r'"[\w-]{24}"|\d{13}', "…", "\n".join([id, due, outcome, ""])) == re.sub(r'"[\w-]{24}"|\d{13}', "…", expected)
    with Queue(redis_url) as queue:
        info = queue.get(topic="order.cancel", key="order:42")
        assert info is not None
        assert (f'1) "{info.id}"', f"2) (integer) {info.due}", info.body) == (id, due, {"order": 42})


def test_the_page_shows_the_function_of_the_example() -> None:
    [block] = re.findall(r"^```js\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert block in (SHOP / "bide.js").read_text(encoding="utf-8")


@pytest.fixture
def node_shop(run: Callable[[str, Path], str]) -> Path:
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not on the PATH")
    if not (INSTALLED / "node_modules" / "ioredis").exists():
        INSTALLED.mkdir(parents=True, exist_ok=True)
        shutil.copy(SHOP / "package.json", INSTALLED)
        if subprocess.run(
            ["npm", "install", "--no-audit", "--no-fund"], cwd=INSTALLED, capture_output=True, check=False
        ).returncode:
            pytest.skip("npm can't install ioredis here")
    for name in ("bide.js", "order.js"):
        shutil.copy(SHOP / name, INSTALLED)
    run("bide script send > send.lua", INSTALLED)
    return INSTALLED


@pytest.mark.parametrize("shards", [1, 3])
def test_node_sends_and_python_handles(
    redis_url: str, run: Callable[[str, Path], str], node_shop: Path, shards: int, tmp_path: Path
) -> None:
    url = f"{redis_url}?shards={shards}"
    with Queue(url) as queue:
        if shards > 1:
            queue.send("first")
        said = re.fullmatch(r"created: message (\S+) is due at (\S+)\n", run("node order.js 42", node_shop))
        assert said
        info = queue.get(topic="order.cancel", key="order:42")
        assert info is not None
        assert (info.id, info.body, info.due_at.strftime("%Y-%m-%dT%H:%M:%S")) == (said[1], {"order": 42}, said[2][:19])
        reminder = queue.get(topic="order.remind", key="order:42")
        assert reminder is not None
        assert reminder.headers == {"trace": "7f3a"}
        assert run("node order.js 42", node_shop).startswith(f"kept: message {info.id} ")
        queue.reschedule(topic="order.cancel", key="order:42", delay=0)
        with processes(tmp_path, REDIS_URL=url) as running:
            worker = running.start("bide", "worker", "examples.node_shop.shop:queue")
            worker.said("order 42 was not paid and is cancelled")
            worker.said("order 42 is packed")
            worker.stop()
        assert (queue.stats("order.pack").pending, queue.stats("order.remind").pending) == (0, 1)


HOSTILE = r"""
import { close, send } from "./bide.js";
await send("t");
await send("t", 2, { key: undefined, delay: null, at: undefined, headers: undefined, shards: undefined });
await send("t", "\u2028 ü \u{1f600}", { headers: { a: "1/ü" }, priority: undefined, max_attempts: 7 });
for (const [body, options] of [["\ud800"], [() => 1], [1, { delay: NaN }], [1, { headers: [] }], [1, { now: 1 }]]) {
  try {
    await send("t", body, options);
    console.log("taken", body);
  } catch (error) {
    console.log(error.message.split(" ")[0]);
  }
}
await close();
"""


def test_what_node_leaves_undefined_is_left_out(redis_url: str, run: Callable[[str, Path], str], node_shop: Path) -> None:
    (node_shop / "hostile.mjs").write_text(HOSTILE, encoding="utf-8")
    assert run("node hostile.mjs", node_shop).split() == ["BADOPTION"] * 5
    with Queue(redis_url) as queue:
        found = sorted(queue.receive("t", limit=9), key=lambda each: str(each.body))
        assert [(each.body, each.key, each.headers, each.max_attempts) for each in found] == [
            (2, None, {}, 3),
            (None, None, {}, 3),
            ("\N{LINE SEPARATOR} ü \N{GRINNING FACE}", None, {"a": "1/ü"}, 7),
        ]
