"""A Redis URL or client: what it says, how it is refused, and that no password is ever shown."""

import json
import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
import redis
import redis.asyncio as aioredis

from bide import BadUrl, BideError, ConfigError
from bide.engines.base import Settings
from bide.engines.redis.client import Endpoint, Secret, async_pool, redacted, sync_pool
from bide.engines.redis.location import read

CANARY = "c4n4ry-s3cr3t/@:%ü"
ENCODED = quote(CANARY, safe="")


def address(url: str, **settings: Any) -> Endpoint:
    return read(Settings(url=url, **settings))


def refusal(url: str, kind: type[BideError] = BadUrl, **settings: Any) -> str:
    """The sentence that refuses a URL; nothing that hangs on the error shows the canary."""
    with pytest.raises(kind) as refused:
        address(url, **settings)
    text = str(refused.value)
    assert 20 < len(text) < 700
    assert "." in text
    seen: BaseException | None = refused.value
    while seen is not None:
        assert_hidden(str(seen), repr(seen), *map(repr, seen.args))
        seen = seen.__cause__ or seen.__context__
    assert_hidden(without_source("".join(traceback.format_exception(refused.value))))
    return text


def without_source(trace: str) -> str:
    return "\n".join(line for line in trace.splitlines() if not line.startswith("    "))  # a test's own lines show it


def assert_hidden(*texts: str) -> None:
    for text in texts:
        assert "c4n4ry" not in text
        assert "s3cr3t" not in text


@pytest.mark.parametrize(
    ("url", "shown", "expected"),
    [
        ("redis://", "redis://localhost:6379/0", {"host": "localhost", "port": 6379, "db": 0}),
        ("redis:///3", "redis://localhost:6379/3", {"host": "localhost", "db": 3}),
        ("redis://db.example", "redis://db.example:6379/0", {"host": "db.example"}),
        ("redis://db.example/", "redis://db.example:6379/0", {"db": 0}),
        ("redis://db.example:7000/2?db=2", "redis://db.example:7000/2", {"port": 7000, "db": 2}),
        ("redis://db.example?", "redis://db.example:6379/0", {"db": 0}),
        ("redis://db.example?db=5", "redis://db.example:6379/5", {"db": 5}),
        ("redis://[::1]", "redis://[::1]:6379/0", {"host": "::1", "port": 6379}),
        ("redis://u:p@[fe80::1%25eth0]:7000/1", "redis://[fe80::1%eth0]:7000/1", {"host": "fe80::1%eth0", "port": 7000}),
        ("rediss://db.example", "rediss://db.example:6379/0", {"host": "db.example", "ssl_check_hostname": True}),
        ("unix:///run/redis.sock", "unix:///run/redis.sock?db=0", {"path": "/run/redis.sock", "db": 0}),
        ("unix://u:p@/run/my%40redis.sock?db=4", "unix:///run/my@redis.sock?db=4", {"path": "/run/my@redis.sock", "db": 4}),
    ],
)
def test_a_url_says_where_the_server_is(url: str, shown: str, expected: dict[str, Any]) -> None:
    found = address(url)
    assert found.shown == shown
    assert found.connection_kwargs().items() >= expected.items()


@pytest.mark.parametrize(
    ("login", "username", "password"),
    [
        ("", None, None),
        ("worker@", "worker", None),
        (":secret@", None, "secret"),
        ("worker:@", "worker", None),
        ("wor%6Ber:a:b@", "worker", "a:b"),
        ("worker:a@b@", "worker", "a@b"),
        ("worker:100%@", "worker", "100%"),
        ("worker:a+b@", "worker", "a+b"),
        (f"w%C3%BC:{ENCODED}@", "wü", CANARY),
    ],
)
def test_the_user_and_the_password_are_decoded(login: str, username: str | None, password: str | None) -> None:
    for url in (f"redis://{login}db.example/1", f"rediss://{login}db.example", f"unix://{login}/run/redis.sock"):
        found = address(url)
        assert found.username == username
        assert (found.password.reveal() if found.password else None) == password
        assert found.secrets == ([password] if password else [])
        provider = found.connection_kwargs().get("credential_provider")
        expected = None if not login else (username, password or "") if username else (password,)
        assert (provider.get_credentials() if provider else None) == expected


def test_options_are_read() -> None:
    found = address("redis://db?namespace=shop&shards=8&wake=poll&allow_eviction=1&timeout=0.5&connect_timeout=2")
    assert (found.namespace, found.shards, found.wake, found.allow_eviction) == ("shop", 8, "poll", True)
    assert found.connection_kwargs().items() >= {"socket_timeout": 0.5, "socket_connect_timeout": 2.0}.items()
    plain = address("redis://db")
    assert (plain.namespace, plain.shards, plain.wake, plain.allow_eviction) == ("bide", None, "list", False)
    assert (plain.timeout, plain.connect_timeout, plain.tls_note) == (5.0, 5.0, "")
    same_for_all = {"protocol": 2, "retry": None, "client_name": "bide", "socket_keepalive": True}
    assert plain.connection_kwargs().items() >= same_for_all.items()


def test_the_namespace_is_said_in_one_place() -> None:
    assert address("redis://", namespace="shop").namespace == "shop"
    assert address("redis://?namespace=shop").namespace == "shop"
    assert address("redis://?namespace=shop", namespace="shop").namespace == "shop"
    assert "one of the two places" in refusal("redis://?namespace=till", ConfigError, namespace="shop")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (tmp_path / name).touch()
    return tmp_path


def test_tls_options_are_read_in_both_spellings(files: Path) -> None:
    for url in (
        f"rediss://db?ca={files}/ca.pem&cert={files}/cert.pem&key={files}/key.pem&verify=ca",
        f"rediss://db?ssl_ca_certs={files}/ca.pem&ssl_certfile={files}/cert.pem&ssl_keyfile={files}/key.pem"
        "&ssl_check_hostname=False&ssl_cert_reqs=required",
    ):
        assert (
            address(url).connection_kwargs().items()
            >= {
                "ssl_ca_certs": f"{files}/ca.pem",
                "ssl_certfile": f"{files}/cert.pem",
                "ssl_keyfile": f"{files}/key.pem",
                "ssl_cert_reqs": "required",
                "ssl_check_hostname": False,
            }.items()
        )


@pytest.mark.parametrize(
    ("options", "required", "check"),
    [
        ("", "required", True),
        ("?verify=full", "required", True),
        ("?verify=ca", "required", False),
        ("?verify=none", "none", False),
        ("?ssl_cert_reqs=none", "none", False),
        ("?ssl_cert_reqs=none&ssl_check_hostname=true", "none", False),
        ("?ssl_cert_reqs=required", "required", True),
        ("?ssl_check_hostname=0", "required", False),
    ],
)
def test_how_much_of_the_certificate_is_checked(options: str, required: str, check: bool) -> None:
    found = address(f"rediss://db{options}")
    taken = found.connection_kwargs()
    assert (taken["ssl_cert_reqs"], taken["ssl_check_hostname"]) == (required, check)
    assert ("not checked" in found.tls_note) == (required == "none")


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("redis://db:0", "from 1 to 65535"),
        ("redis://db:65536", "from 1 to 65535"),
        ("redis://db:", "from 1 to 65535"),
        ("redis://db:6e3", "from 1 to 65535"),
        ("redis://db:٣", "from 1 to 65535"),
        ("redis://db/x", "database"),
        ("redis://db/-1", "database"),
        ("redis://db/0/1", "database"),
        ("redis://db/99999999999", "database"),
        ("redis://db/1?db=2", "leave one of them out"),
        ("redis://db/0?db=2", "leave one of them out"),
        ("redis://db?db=x", "option db"),
        ("redis://::1", "brackets"),
        ("redis://[::1", "brackets"),
        ("redis://[db]", "IPv6"),
        ("redis://[::1]x", "brackets"),
        ("redis://a,b:6379", "host"),
        ("redis://a b", "host"),
        ("redis://db%00", "host"),
        ("redis://%ff", "UTF-8"),
        ("redis://:%ff@db", "UTF-8"),
        ("redis://db#0", "%23"),
        ("redis://db?shards=0", "from 1 to 64"),
        ("redis://db?shards=65", "from 1 to 64"),
        ("redis://db?shards=two", "from 1 to 64"),
        ("redis://db?wake=never", "list, poll, expiry"),
        ("redis://db?allow_eviction=yes", "0 or 1"),
        ("redis://db?timeout=0", "from 0.1 to 600"),
        ("redis://db?timeout=601", "from 0.1 to 600"),
        ("redis://db?timeout=nan", "from 0.1 to 600"),
        ("redis://db?connect_timeout=1e3", "from 0.1 to 600"),
        ("redis://db?namespace=a:b", "namespace=shop"),
        ("redis://db?namespace=", "has no value"),
        ("redis://db?wake", "has no value"),
        ("redis://db?wake=list&wake=list", "twice"),
        ("rediss://db?ca=/a&ssl_ca_certs=/b", "ca twice"),
        ("redis://db?&", "number 1"),
        ("redis://db?max_connections=5", "option max_connections is not known"),
        ("redis://db?wake=list&decode_responses=1", "option decode_responses is not known"),
        ("redis+sentinel://db/x?sentinel_password=my&secret=1", "number 2"),
        ("redis://db?socket_timeout=5", "Is it timeout?"),
        ("redis://db?name_space=5", "Is it namespace?"),
        ("redis://db?password=hunter2", "redis://user:password@host"),
        ("redis://db?verify=full", "write rediss://"),
        ("redis://db?ssl_cert_reqs=none", "write rediss://"),
        ("unix:///run/redis.sock?ca=/a", "write rediss://"),
        ("rediss://db?verify=maybe", "full, ca"),
        ("rediss://db?verify=full&ssl_cert_reqs=none", "verify alone"),
        ("rediss://db?ssl_cert_reqs=optional", "required or none"),
        ("rediss://db?ssl_check_hostname=maybe", "true or false"),
        ("unix://run/redis.sock", "three slashes"),
        ("unix://", "three slashes"),
        ("unix:///", "three slashes"),
        ("unix:///run/a%00b", "rename"),
        ("unix:///run/a@b", "%40"),
        ("http://db", "redis://host:6379/0"),
    ],
)
def test_a_bad_url_is_refused_with_what_to_do(url: str, advice: str) -> None:
    assert advice in refusal(url)


def test_files_that_are_not_there_are_named(files: Path) -> None:
    for option in ("ca", "ssl_ca_certs"):
        assert f"{files}/none.pem" in refusal(f"rediss://db?{option}={files}/none.pem", ConfigError)
    assert f"{files}/none.pem" in refusal(f"rediss://db?cert={files}/cert.pem&key={files}/none.pem", ConfigError)
    assert str(files) in refusal(f"rediss://db?ca={files}", ConfigError)
    assert "not there" in refusal("rediss://db?ca=/%00", ConfigError)
    for one in ("cert", "key"):
        assert "or neither" in refusal(f"rediss://db?{one}={files}/{one}.pem")


@pytest.mark.parametrize("secret", [CANARY, ENCODED, ENCODED.lower(), CANARY.replace("@", "%40"), quote(CANARY, safe="/")])
@pytest.mark.parametrize(
    "pattern",
    [
        "redis://u:{}@db:x",
        "redis://u:{}@db/x",
        "redis://u:{}@db?{}",
        "redis://u:{}@db?{}=1",
        "redis://u:{}@db?namespace={}",
        "redis://u:{}@db?shards={}&wake={}",
        "redis://u:{}@[::x]",
        "redis://u:{}@{}@{}:{}/{}",
        "redis://db:{}",
        "redis://db/{}",
        "redis://db?{}",
        "redis://db?password={}",
        "redis://db?db={}",
        "redis://db?timeout={}",
        "redis://db?wake={}",
        "redis://u:{}?x@db",
        "redis://u:{}#x@db",
        "redis://u:%ff{}@db",
        "redis://[{}]",
        "rediss://u:{}@db?ca=/none/{}",
        "rediss://u:{}@db?verify={}",
        "rediss://db?ssl_check_hostname={}",
        "unix://u:{}@run/x",
        "unix://u:{}@/run/x?ssl_ca_certs={}",
        "{}://db",
    ],
)
def test_no_refusal_shows_the_password(pattern: str, secret: str) -> None:
    refusal(pattern.replace("{}", secret), ConfigError)


@pytest.mark.parametrize(
    "url", [f"redis://me:{ENCODED}@db", f"rediss://me:{ENCODED}@db", f"unix://me:{ENCODED}@/run/redis.sock"]
)
def test_nothing_of_an_address_shows_the_password(url: str, caplog: pytest.LogCaptureFixture) -> None:
    found = address(url)
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("bide").warning("%s %r %s", found, found, found.password)
    pools = [sync_pool(found), async_pool(found)]
    connections = [pool.make_connection() for pool in pools]  # type: ignore[attr-defined]
    texts = [repr(found), str(found), f"{found}", found.shown, caplog.text, str(found.__rich_repr__())]
    texts += [
        repr(msgspec.structs.asdict(found)),
        repr(found.connection_kwargs()),
        repr(found.client),
        repr(vars(found.client)),
    ]
    texts += [repr(each) for each in (*pools, *connections)]
    assert_hidden(*texts)
    assert "me" not in found.shown.replace("://", "")


def test_a_secret_gives_its_text_to_reveal_only() -> None:
    secret = Secret(CANARY)
    assert secret.reveal() == CANARY
    assert_hidden(repr(secret), str(secret), f"{secret}", f"{secret!s:>9}", repr([secret]), repr({"a": secret}))
    assert secret == Secret(CANARY)
    assert secret != Secret("other")
    assert len({secret, Secret(CANARY)}) == 1


@pytest.mark.parametrize("secret", [CANARY, 'it\'s "both" \\ of\tthem', "a b+c", "€𝄞", ".*[x]{2}(?i)", "\ud800x"])
def test_a_secret_is_redacted_in_every_spelling(secret: str) -> None:
    encoded = secret.encode("utf-8", "surrogatepass")
    spellings = {
        secret, repr(secret)[1:-1], ascii(secret)[1:-1], repr(encoded)[2:-1], json.dumps(secret)[1:-1],
        quote(encoded, safe=""), quote(encoded, safe="").lower(), quote(encoded, safe="/@:").replace("%20", "+"),
    }  # fmt: skip
    for spelling in spellings:
        assert redacted(f"before {spelling} after, {spelling}", ["other", secret]) == "before *** after, ***"


def test_what_is_no_secret_is_left_alone() -> None:
    assert redacted("Connection refused, ABC", ["", "abc", CANARY]) == "Connection refused, ABC"
    assert redacted("secret-long and secret", ["secret", "secret-long"]) == "*** and ***"


CLIENTS: list[Callable[..., Any]] = [redis.Redis, aioredis.Redis]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_says_where_the_server_is(client: Callable[..., Any]) -> None:
    login = {"username": "me", "password": CANARY}
    given = client(host="db.example", port=7000, db=2, decode_responses=True, protocol=3, socket_timeout=2, **login)
    found = address("redis://?namespace=shop&shards=4&wake=expiry", client=given)
    assert (found.shown, found.namespace, found.shards, found.wake) == ("redis://db.example:7000/2", "shop", 4, "expiry")
    assert (found.timeout, found.secrets) == (2.0, [CANARY])
    assert_hidden(repr(found), str(found.__rich_repr__()))
    for pool in (sync_pool(found), async_pool(found)):
        connection: Any = pool.make_connection()
        assert (connection.host, connection.port, connection.db) == ("db.example", 7000, 2)
        assert connection.credential_provider.get_credentials() == ("me", CANARY)
        assert (connection.protocol, connection.encoder.decode_responses) == (2, False)
        assert connection.retry._retries == 0
        assert_hidden(repr(pool), repr(connection))
    assert address("redis://?timeout=7", client=given).timeout == 7.0
    assert address("redis://", client=client(socket_timeout=None)).timeout == 5.0
    assert address("redis://", client=client(unix_socket_path="/run/redis.sock")).shown == "unix:///run/redis.sock?db=0"
    assert address("redis:///", client=client(host="::1", ssl=True)).shown == "rediss://[::1]:6379/0"


def test_a_url_beside_a_client_names_no_server() -> None:
    client = redis.Redis()
    for url in (
        "redis://db", "redis://:6379", "redis:///0", f"redis://:{ENCODED}@", "redis://?db=0", "redis://?verify=none",
        "rediss://", "unix:///run/redis.sock", "unix://",
    ):  # fmt: skip
        assert "beside client=" in refusal(url, ConfigError, client=client)


@pytest.mark.parametrize("client", ["redis://", object(), redis.Redis, redis.ConnectionPool()], ids=type)
def test_what_is_no_client_is_refused(client: object) -> None:
    assert "Give a Redis or a RedisCluster" in refusal("redis://", ConfigError, client=client)


class OwnConnection(redis.Connection):
    """As a user would make one."""


def test_a_connection_class_of_the_users_own_serves_its_own_colour_only() -> None:
    found = address("redis://", client=redis.Redis(connection_pool=redis.ConnectionPool(connection_class=OwnConnection)))
    assert isinstance(sync_pool(found).make_connection(), OwnConnection)
    with pytest.raises(ConfigError, match=r"OwnConnection.*give an AsyncQueue a redis\.asyncio\.Redis"):
        async_pool(found)


def test_what_the_other_colour_can_not_take_over_is_refused_and_not_dropped() -> None:
    found = address("redis://", client=redis.Redis(ssl=True, ssl_validate_ocsp=True))
    sync_pool(found)
    with pytest.raises(ConfigError, match="ssl_validate_ocsp"):
        async_pool(found)
    found = address("redis://", client=aioredis.Redis(redis_connect_func=lambda connection: None))
    async_pool(found)
    with pytest.raises(ConfigError, match="redis_connect_func"):
        sync_pool(found)


def test_a_client_of_sentinels_is_taken_in_its_own_colour() -> None:
    sentinel: Any = redis.Sentinel
    client = sentinel([("db.example", 26379)]).master_for("orders", db=1)
    found = address("redis://", client=client)
    assert found.shown == "redis://orders:6379/1"
    assert isinstance(sync_pool(found).make_connection(), redis.SentinelManagedConnection)
    with pytest.raises(ConfigError, match="SentinelManagedConnection"):
        async_pool(found)
