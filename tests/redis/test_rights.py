"""A user with the rights that `bide doctor --acl` prints can do all that it is meant for, and has no right too many."""

import contextlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from bide.engines.base import End, Hold, Move, NewMessage, Ref, Settings, Window
from bide.engines.redis import CAPABILITIES, source
from bide.engines.redis.client import Wake
from bide.engines.redis.doctor import rights
from bide.engines.redis.doctor.rights import ROLES, Role, Use, needed
from bide.engines.redis.sync.engine import Redis
from bide.engines.registry import Source
from bide.errors import ConfigError
from bide.testing.contract import EngineContract
from tests.model.turns import COLOURS, LONG
from tests.servers.programs import is_redis_6, needs_program
from tests.servers.redis import RedisServer

pytestmark = [pytest.mark.server, pytest.mark.skipif(is_redis_6(), reason="Redis 6.2 checks rights in another way")]

PASSWORD = "let/me@in"
ENCODED = "let%2Fme%40in"
START = 4_000_000_000_000
HOUR = 3_600_000
ADMIN = {"username": "admin", "password": "admin"}


@pytest.fixture(scope="module")
def guarded() -> Iterator[RedisServer]:
    """A server where nobody gets in without a name, and `admin` may do anything."""
    needs_program("redis-server")
    with RedisServer(user=["default off", "admin on >admin ~* &* +@all"]) as server:
        yield server


@pytest.fixture
def admin(guarded: RedisServer) -> Iterator[Any]:
    """Of an empty server that knows no scripts, has the users as they are printed, and has noted nothing yet."""
    with guarded.client(**ADMIN) as client:
        client.flushall()
        client.script_flush()
        for role in ROLES:
            client.acl_deluser(f"bide-{role}")
            client.execute_command(*rights.line(role, "bide").replace("CHANGE-ME", PASSWORD).split())
        client.acl_log_reset()
        client.config_resetstat()
        yield client


def refused(admin: Any) -> list[str]:
    """What the server has noted that nobody may do, but for the name that the driver gives itself from Redis 7.2 on."""
    return [entry["object"] for entry in admin.acl_log() if entry["object"] != "client|setinfo"]


def url_of(server: RedisServer, role: Role) -> str:
    return server.url.replace("://", f"://bide-{role}:{ENCODED}@")


@pytest.mark.variant("redis")
class TestAsAWorker(EngineContract):
    """All of the contract, and nothing is refused."""

    capabilities = CAPABILITIES
    colours = COLOURS if LONG else ("sync",)

    @pytest.fixture
    def make_source(self, guarded: RedisServer, admin: Any) -> Iterator[Callable[..., Source]]:
        admin.execute_command("ACL", "SETUSER", "bide-worker", "~{other:*", "~{keeping:*")  # namespaces of the contract

        def make(**settings: Any) -> Source:
            return source(Settings(url=url_of(guarded, "worker"), **settings))

        yield make
        assert refused(admin) == []


def opened(url: str) -> Redis:
    engine = source(Settings(url=url)).sync()
    engine.open()
    return engine


def test_each_call_that_a_server_is_asked_about_has_the_arguments_that_it_needs(admin: Any) -> None:
    """A server refuses to tell of a call that has too few."""
    for line in rights.calls("k", Use(confirm="replicas")):
        name, *arguments = line.split()
        if name in ("client", "cluster", "config"):  # they have commands of their own
            continue
        [told] = admin.execute_command("COMMAND", "INFO", name).values()
        assert 1 + len(arguments) == told["arity"] or 1 + len(arguments) >= -told["arity"] > 0, line


def send_and_look(engine: Redis) -> None:
    """All that a producer does: soon and late, large and small, with keys and without."""
    sent = engine.put([NewMessage("t", b"x", delay=ms, level=level) for ms in (0, 5, HOUR) for level in (0, 1)], now=START)
    keyed = [NewMessage("t", b"x", key=f"k{i}", delay=HOUR, expires_in=HOUR) for i in range(120)]
    engine.put([*keyed, NewMessage("t", b"x" * 5_000, delay=7, operation="once")], now=START)
    engine.put([NewMessage("t", b"y" * 5_000, key="k1", if_exists="replace", delay=HOUR)], now=START)
    engine.put([NewMessage("t", b"z", key="k1", if_exists="later", delay=2 * HOUR)], now=START)
    engine.put([NewMessage("t", b"z", key="k1", if_exists="later", delay=2 * HOUR, max_wait=3 * HOUR)], now=START)
    engine.put([NewMessage("t", b"z", key="k7", delay=HOUR, unique_for=HOUR)], now=START)
    for _ in range(5):
        engine.put([NewMessage("t", b'["' + b"z" * 400 + b'"]', key="k8", delay=HOUR, if_exists="merge")], now=START)
    engine.reschedule([Move(Ref(id=sent[4].id), delay=10), Move(Ref(topic="t", key="k3"), delay=10)], now=START)
    engine.cancel([Ref(topic="t", key="k1"), Ref(topic="t", key="k2"), Ref(id=sent[5].id)], now=START)
    engine.get([Ref(topic="t", key="k3"), Ref(id=sent[1].id)], now=START)
    engine.scan("t", None, 1_000, now=START)
    engine.scan("t", "scheduled", 1_000, now=START)
    engine.stats(now=START)
    engine.stats("t", window=Window(START, START + HOUR, 4), now=START)


def receive_and_tend(engine: Redis) -> None:
    """What a worker does beside it."""
    now = START + 1_000
    held = engine.claim(["t"], 100, 10_000, request="one", now=now).messages
    assert len(held) == 7
    engine.extend([Hold("t", held[0].id, held[0].token)], 20_000, now=now)
    engine.settle([End("t", held[i].id, held[i].token, "done") for i in (0, 1)], now=now)
    engine.settle(
        [End("t", held[2].id, held[2].token, "dead", error="no"), End("t", held[3].id, held[3].token, "retry")], now=now
    )
    engine.claim(["t"], 100, 10_000, request="two", now=now)
    engine.scan("t", "dead", 10, now=now)
    engine.requeue("t", now=now)
    engine.tend(now=now + HOUR // 2)
    engine.claim(["t"], 100, 10_000, request="three", now=now + HOUR)
    engine.tend(now=now + 3 * HOUR)
    engine.purge("t", "ready", now=now + 3 * HOUR)
    engine.pause("t", True)
    engine.pause("t", False)
    engine.claim(["u"], 1, 10_000, request="four", now=now + 3 * HOUR)
    engine.wait(["never claimed"], 0.01)


DOES: dict[Role, tuple[Callable[[Redis], None], ...]] = {
    "producer": (send_and_look,),
    "worker": (send_and_look, receive_and_tend),
}


def work(server: RedisServer, role: Role, options: str = "") -> None:
    engine = opened(url_of(server, role) + options)
    try:
        for do in DOES[role]:
            do(engine)
    finally:
        engine.close()


@pytest.mark.parametrize("role", ROLES)
def test_a_user_as_printed_does_its_work_and_nothing_is_refused(guarded: RedisServer, admin: Any, role: Role) -> None:
    work(guarded, role)
    assert refused(admin) == []


@pytest.mark.parametrize("wake", ["list", "poll", "expiry"])
def test_a_user_as_printed_is_woken_in_any_way(guarded: RedisServer, admin: Any, wake: Wake) -> None:
    admin.config_set("notify-keyspace-events", "Ex" if wake == "expiry" else "")
    for role in ROLES:
        admin.flushall()
        admin.execute_command(*rights.line(role, "bide", Use(wake)).replace("CHANGE-ME", PASSWORD).split())
        work(guarded, role, f"?wake={wake}")
        assert refused(admin) == []
    common = set(needed("producer")) & set(needed("producer", Use("poll")))  # another test takes these away
    for right in set(needed("worker", Use(wake))) - common:
        admin.flushall()
        admin.execute_command("ACL", "SETUSER", "bide-worker", f"-{right}")
        told = ""
        try:
            work(guarded, "worker", f"?wake={wake}")
        except Exception as error:
            told = str(error).lower()
        assert right in told or right in set(refused(admin)), f"nobody misses {right}"
        admin.execute_command("ACL", "SETUSER", "bide-worker", f"+{right}")
        admin.acl_log_reset()


def test_a_producer_can_not_wait_for_messages(guarded: RedisServer, admin: Any) -> None:
    engine = opened(url_of(guarded, "producer"))
    with contextlib.suppress(Exception):
        engine.wait(["never claimed"], 0.01)
    engine.close()
    assert set(refused(admin)) == {"client|id"}


@pytest.mark.parametrize(
    ("wake", "parts"), [("poll", ["+lpop"]), ("expiry", ["+subscribe", "&__keyevent@*__:expired"]), ("list", ["+blpop"])]
)
def test_each_way_of_waking_has_rights_of_its_own(guarded: RedisServer, admin: Any, wake: Wake, parts: list[str]) -> None:
    lines = [rights.line(role, "bide", Use(wake), database=3).replace("CHANGE-ME", PASSWORD) for role in ROLES]
    assert [part in line.split() for line in lines for part in parts] == [False] * len(parts) + [True] * len(parts)
    for line in lines:
        admin.execute_command(*line.split())
    url = url_of(guarded, "worker").removesuffix("0") + f"3?wake={wake}"
    told = {each.name: each.value for each in source(Settings(url=url)).examine()}
    assert told["rights"] == "all that a worker needs"
    [lacking] = [each for each in source(Settings(url=url.replace("worker", "producer"))).examine() if each.name == "rights"]
    assert (lacking.value, lacking.level) == ("all that a producer needs", "warn")


@pytest.mark.parametrize(("role", "right"), [(role, right) for role in ROLES for right in needed(role)])
def test_without_any_right_something_fails_and_the_doctor_names_it(
    guarded: RedisServer, admin: Any, role: Role, right: str
) -> None:
    admin.execute_command("ACL", "SETUSER", f"bide-{role}", f"-{right}")
    said = ""
    try:
        work(guarded, role)
    except Exception as error:
        said = str(error).lower()
    assert PASSWORD not in said
    noted = set(refused(admin))
    assert re.search(rf"\b{re.escape(right)}\b", said) or right in noted, "nobody misses it"

    told = source(Settings(url=url_of(guarded, role))).examine()
    assert any(each.level != "ok" and right in each.value + each.advice for each in told)
    assert not any(PASSWORD in each.value or ENCODED in each.value for each in told)


def look_at_all(engine: Redis, ids: list[str]) -> list[Any]:
    now = START + 1_000
    got = engine.get([Ref(id=ids[0]), Ref(topic="t", key="k3")], now=now)
    pages = [engine.scan("t", state, 1_000, now=now).messages for state in (None, "scheduled", "ready", "leased", "dead")]
    told = engine.stats("t", window=Window(START, START + HOUR, 4), now=now)
    return [*got, *pages, replace(told, oldest_overdue=0.0)]  # time goes on while we look


@pytest.mark.parametrize("back", [False, True])
def test_a_user_who_may_only_read_can_look(guarded: RedisServer, admin: Any, back: bool) -> None:
    """Also when the server's clock was set back, which somebody else has to write down."""
    worker = opened(url_of(guarded, "worker"))
    send_and_look(worker)
    held = worker.claim(["t"], 6, 10_000, now=START + 1_000).messages
    worker.settle([End("t", held[0].id, held[0].token, "dead", error="no")], now=START + 1_000)
    seen = look_at_all(worker, [each.id for each in held])
    grants = "+eval +evalsha +client|setname +info +@read +time -dump"
    admin.execute_command(*f"ACL SETUSER bide-producer reset on >{PASSWORD} ~{{bide:* -@all {grants}".split())
    reader = opened(url_of(guarded, "producer"))
    if back:
        admin.hset("{bide:0}:meta", "raw", START * 2_000)
    told = admin.hgetall("{bide:0}:meta")
    assert look_at_all(reader, [each.id for each in held]) == seen
    assert admin.hgetall("{bide:0}:meta") == told
    with pytest.raises(ConfigError, match="right"):
        reader.put([NewMessage("t", b"x")])
    assert not [each for each in admin.acl_log() if each["object"] in ("hset", "hdel")]
    reader.close()
    worker.close()


def test_another_namespace_is_out_of_reach(guarded: RedisServer, admin: Any) -> None:
    engine = source(Settings(url=url_of(guarded, "worker"), namespace="other")).sync()
    with pytest.raises(ConfigError, match="right"):
        engine.open()
    engine.close()
    assert admin.dbsize() == 0


def test_a_database_takes_one_right_more(guarded: RedisServer, admin: Any) -> None:
    admin.execute_command(*rights.line("worker", "bide", database=3).replace("CHANGE-ME", PASSWORD).split())
    engine = opened(url_of(guarded, "worker").removesuffix("0") + "3")
    engine.put([NewMessage("t", b"x")])
    engine.close()
    assert refused(admin) == []
    assert "select" not in rights.line("worker", "bide")


@pytest.mark.parametrize(
    ("commands", "missing"),
    [
        ("-@all " + " ".join(f"+{right}" for right in needed("worker")), []),
        ("-@all +client " + " ".join(f"+{right}" for right in needed("worker") if right not in ("get", "client|id")), ["get"]),
        ("-@all +@read +@write", None),
        ("+@all -flushall", None),
        ("", None),
    ],
)
def test_rights_are_read_off_plain_rules_before_redis_7(commands: str, missing: list[str] | None) -> None:
    assert rights.missing_in([], commands) == missing
    assert rights.missing_in(["on", "allcommands"], commands) == []


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "bide", "doctor", "--acl", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_prints_lines_that_a_server_takes(guarded: RedisServer, admin: Any) -> None:
    done = run("--url", f"redis://{ENCODED}:{ENCODED}@nowhere.invalid/0", "--namespace", "shop")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert [line.split()[2] for line in lines] == ["bide-producer", "bide-worker"]
    for line in lines:
        assert "resetkeys resetchannels ~{shop:* -@all +" in line
        assert admin.execute_command(*line.split()) == b"OK"
    assert "CHANGE-ME" in done.stderr
    assert "let" not in done.stdout + done.stderr


def test_the_command_takes_the_namespace_of_the_url() -> None:
    assert "~{till:* " in run("--url", "redis://?namespace=till").stdout


def test_the_command_is_for_redis_only() -> None:
    done = run("--url", "memory://")
    assert (done.returncode, done.stdout) == (1, "")
    assert "--acl works only with Redis. Give a redis:// URL" in done.stderr
    assert run("--url", "redis://", "--json").returncode == 2
