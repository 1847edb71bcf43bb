"""Names of claims: no two alike, and people can read who made them."""

import os
import socket

import pytest

from bide.ids import HOST, process_name, requests, worker_of


def test_a_claim_is_named_after_its_process() -> None:
    first, second = requests(), requests()
    names = [first(), first(), second()]
    assert len(set(names)) == 3
    assert {worker_of(name) for name in names} == {process_name(os.getpid())}


@pytest.mark.parametrize(
    ("host", "shown"),
    [("web-3.shop.example", "web-3"), ("", "localhost"), ("a/b c", "a_b_c"), ("büro", "b_ro"), ("x" * 200, "x" * HOST)],
)
def test_a_machine_may_have_any_name(monkeypatch: pytest.MonkeyPatch, host: str, shown: str) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    assert process_name(4711) == f"{shown}:4711"
    assert worker_of(requests()()) == f"{shown}:{os.getpid()}"


def test_a_name_that_an_older_release_gave_tells_processes_apart() -> None:
    assert worker_of("a1b2c3.1") == worker_of("a1b2c3.2f") != worker_of("d4e5f6.1")
