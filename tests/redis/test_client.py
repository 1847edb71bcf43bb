"""Connections over TCP, Unix sockets and TLS, in both colours, to a real server with a password."""

import shutil
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import redis
import redis.asyncio as aioredis

from bide.engines.base import Settings
from bide.engines.redis.client import Endpoint, async_pool, redacted, sync_pool
from bide.engines.redis.location import read
from tests.servers.certificates import Certificates
from tests.servers.programs import is_without_tls, lacking
from tests.servers.redis import RedisServer
from tests.servers.server import NotStarted

PASSWORD = "c4n4ry-s3cr3t/@:%ü"
ENCODED = quote(PASSWORD, safe="")
Ask = Callable[..., Awaitable[Any]]

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(
        not shutil.which("redis-server") or not shutil.which("openssl"), reason="needs redis-server and openssl"
    ),
]


class Server(RedisServer):
    """With a password, and TLS for the name localhost only."""

    def __init__(self, certificates: Path) -> None:
        make_certificates(certificates)
        self.ca, self.cert, self.key = (certificates / name for name in ("ca.pem", "cert.pem", "key.pem"))
        super().__init__(tls=Certificates(self.ca, self.cert, self.key, self.cert, self.key), requirepass=PASSWORD)
        self._settings["tls-auth-clients"] = "optional"

    @property
    def places(self) -> dict[str, str]:
        login = f"default:{ENCODED}@"
        return {
            "tcp": f"redis://{login}127.0.0.1:{self.port}/3",
            "unix": f"unix://{login}{self.socket_path}?db=3",
            "tls": f"rediss://{login}localhost:{self.tls_port}/3?ca={self.ca}",
            "tls with a certificate": f"rediss://{login}localhost:{self.tls_port}/3?ca={self.ca}"
            f"&cert={self.cert}&key={self.key}",
            "tls by address": f"rediss://{login}127.0.0.1:{self.tls_port}/3?ca={self.ca}&verify=ca",
            "tls unchecked": f"rediss://{login}127.0.0.1:{self.tls_port}/3?verify=none",
        }

    def client_at(self, place: str, colour: str) -> Any:
        made: Any = redis.Redis if colour == "sync" else aioredis.Redis
        common: dict[str, Any] = {"username": "default", "password": PASSWORD, "db": 3, "decode_responses": True}
        if place == "unix":
            return made(unix_socket_path=str(self.socket_path), **common)
        if place == "tls":
            return made(host="localhost", port=self.tls_port, ssl=True, ssl_ca_certs=str(self.ca), **common)
        return made(host="127.0.0.1", port=self.port, **common)


def make_certificates(folder: Path) -> None:
    """An authority, and its certificate for the name localhost."""
    (folder / "names").write_text("subjectAltName=DNS:localhost\nauthorityKeyIdentifier=keyid\n")
    for command in (
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.pem "
        "-addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign",
        "req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout key.pem -out asked.pem",
        "x509 -req -in asked.pem -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out cert.pem",
    ):
        subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    try:
        with Server(tmp_path_factory.mktemp("certificates")) as started:
            yield started
    except NotStarted as error:
        if is_without_tls(str(error)):
            lacking("redis-server was built without TLS")
        raise


async def ask_async(address: Endpoint, *commands: tuple[str, ...]) -> list[Any]:
    pool: Any = async_pool(address)
    connection = pool.make_connection()
    try:
        await connection.connect()
        answers = []
        for command in commands:
            await connection.send_packed_command(connection.pack_command(*command))
            answers.append(await connection.read_response())
        return answers
    finally:
        await connection.disconnect()


async def ask_sync(address: Endpoint, *commands: tuple[str, ...]) -> list[Any]:
    pool: Any = sync_pool(address)
    connection = pool.make_connection()
    try:
        connection.connect()
        answers = []
        for command in commands:
            connection.send_packed_command(connection.pack_command(*command))
            answers.append(connection.read_response())
        return answers
    finally:
        connection.disconnect()


@pytest.fixture(params=[ask_sync, ask_async])
def ask(request: pytest.FixtureRequest) -> Any:
    return request.param


def assert_greeted(answers: list[Any]) -> None:
    """By bytes, whatever a client would decode them to; logged in, in the right database, under the right name."""
    pong, info = answers
    assert pong == b"PONG"
    assert b" db=3 " in info
    assert b" name=bide " in info
    assert b" user=default " in info


GREETING = (("PING",), ("CLIENT", "INFO"))
PLACES = ("tcp", "unix", "tls", "tls with a certificate", "tls by address", "tls unchecked")


@pytest.mark.parametrize("place", PLACES)
async def test_a_url_reaches_its_server(server: Server, ask: Ask, place: str) -> None:
    address = read(Settings(url=server.places[place]))
    assert_greeted(await ask(address, *GREETING))
    assert "c4n4ry" not in address.shown


@pytest.mark.parametrize("place", ["tcp", "unix", "tls"])
@pytest.mark.parametrize("colour", ["sync", "async"])
async def test_a_client_of_either_colour_reaches_its_server_in_both(server: Server, ask: Ask, colour: str, place: str) -> None:
    client = server.client_at(place, colour)
    assert_greeted(await ask(read(Settings(url="redis://", client=client)), *GREETING))


async def test_a_certificate_of_another_name_or_authority_is_refused(server: Server, ask: Ask) -> None:
    by_address = server.places["tls"].replace("localhost", "127.0.0.1")
    unknown = server.places["tls"].partition("?")[0]
    for url in (by_address, unknown, unknown + "?verify=ca"):
        address = read(Settings(url=url))
        with pytest.raises((redis.ConnectionError, OSError), match=r"(?i)certificate"):
            await ask(address, ("PING",))


async def test_a_wrong_password_is_in_no_error_of_the_driver(server: Server, ask: Ask) -> None:
    address = read(Settings(url=f"redis://:wrong-{ENCODED}@127.0.0.1:{server.port}"))
    with pytest.raises(redis.AuthenticationError) as refused:
        await ask(address, ("PING",))
    assert "c4n4ry" not in redacted(f"{refused.value!r} {refused.value}", address.secrets)


async def test_a_server_that_does_not_answer_counts_as_lost_after_the_timeout(server: Server, ask: Ask) -> None:
    address = read(Settings(url=server.places["tcp"] + "?timeout=0.2"))
    started = time.monotonic()
    with pytest.raises(redis.TimeoutError):
        await ask(address, ("BLPOP", "nothing", "0"))
    assert 0.15 < time.monotonic() - started < 5
