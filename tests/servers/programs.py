"""Decides what a missing server means for a test: a skip on a laptop, a failure where everything must be tested."""

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

DEBIAN = Path("/usr/lib/postgresql")  # a folder for each version
DEBIAN_RABBITMQ = Path("/usr/lib/rabbitmq/lib")  # the programs on the PATH run only as the user of Debian's own service


def needs_program(name: str) -> str:
    """The path of a program. Without it the test is skipped, or fails when the environment variable CI is set."""
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if path is None:
        lacking(f"{name} is not on the PATH; `make servers` installs it on Debian")
    return path


@functools.cache
def is_redis_6() -> bool:
    """Whether redis-server is a Redis before 7.0, which notices a missing right in the middle of a script."""
    path = shutil.which("redis-server")
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout if path else ""
    return "Redis server v=6." in said


def postgres_folder() -> Path | None:
    """Where PostgreSQL's programs are: in the environment variable BIDE_TEST_POSTGRES, in Debian's newest, or on the PATH."""
    if told := os.environ.get("BIDE_TEST_POSTGRES"):
        return Path(told) if shutil.which("postgres", path=told) else None
    folders = [folder for folder in DEBIAN.glob("*/bin") if (folder / "initdb").exists()]
    if folders:
        return max(folders, key=lambda folder: int(folder.parent.name))
    found = shutil.which("postgres")
    return None if found is None else Path(found).resolve().parent


def needs_postgres() -> None:
    """A PostgreSQL server. Debian's programs for it are not on the PATH."""
    needs_program("ps")
    if postgres_folder() is None:
        where = os.environ.get("BIDE_TEST_POSTGRES") or f"{DEBIAN} or on the PATH"
        lacking(f"PostgreSQL is not in {where}; `make servers` installs it on Debian")


def rabbitmq_folder() -> Path | None:
    """Where RabbitMQ's programs are: in the environment variable BIDE_TEST_RABBITMQ, where Debian has them, or on the PATH."""
    if told := os.environ.get("BIDE_TEST_RABBITMQ"):
        return Path(told) if shutil.which("rabbitmq-server", path=told) else None
    if folders := sorted(DEBIAN_RABBITMQ.glob("rabbitmq_server-*/sbin")):
        return folders[-1]
    found = shutil.which("rabbitmq-server")
    return None if found is None else Path(found).resolve().parent


def rabbitmq_program(name: str) -> str:
    """The path of one of RabbitMQ's programs, or of Erlang's that it takes."""
    folder = rabbitmq_folder()
    assert folder is not None, "a test that starts RabbitMQ calls needs_rabbitmq first"
    return shutil.which(name, path=str(folder)) or needs_program(name)


def needs_rabbitmq() -> None:
    """A RabbitMQ broker, and the Erlang that it runs on."""
    needs_program("ps")
    if rabbitmq_folder() is None:
        where = os.environ.get("BIDE_TEST_RABBITMQ") or f"{DEBIAN_RABBITMQ} or on the PATH"
        lacking(f"RabbitMQ is not in {where}; `make servers` installs it on Debian")
    rabbitmq_program("epmd")


def needs_groups() -> None:
    """Clusters and Sentinel groups. Linux has the addresses for them, and Redis 7.0 the settings."""
    needs_program("redis-server")
    if sys.platform != "linux":
        lacking("clusters and Sentinel groups for tests take Linux, which has all of 127.0.0.0/8")
    if is_redis_6():
        pytest.skip("clusters and Sentinel groups for tests take Redis 7.0, which calls from an address that it is given")


def is_without_tls(said: str) -> bool:
    """Whether a server that did not start says that it was built without TLS."""
    return "Failed finding TLS" in said or "tls-" in said.partition("FATAL CONFIG FILE ERROR")[2]


def lacking(said: str) -> NoReturn:
    """Skip the test, or fail it."""
    if os.environ.get("CI"):
        pytest.fail(f"{said}; under CI nothing is skipped", pytrace=False)
    pytest.skip(said)
