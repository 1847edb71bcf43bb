"""What this release notes of attempts, the one before passes over; and it makes nothing of it untrue."""

from typing import Any

import pytest
import redis

from tests.upgrade.release import PLACES, Release

KEYS = ["stays", "moved", "replaced", "dead"]

pytestmark = pytest.mark.parametrize("place", PLACES, indirect=True)  # the later ones know all of this


def test_when_a_first_attempt_began_is_told_whichever_release_has_had_the_message_since(
    before: Release, now: Release, url: str
) -> None:
    asked: dict[str, Any] = {"url": url, "topic": "story"}
    # Given messages that have failed here, the release before tells of them what it always has
    before.do("send_keys", **asked, keys=KEYS)
    assert now.do("try_again", **asked, error="once") == {key: [1, 0] for key in KEYS}
    assert errors(before, url) == dict.fromkeys(KEYS, "once") == errors(now, url)
    # When they fail there and here, this release knows still since when they have been tried
    assert before.do("try_again", **asked, error="twice") == {key: [2, None] for key in KEYS}
    assert errors(before, url) == dict.fromkeys(KEYS, "twice") == errors(now, url)
    tried = now.do("try_again", **asked, error="thrice")
    assert {key: attempt for key, [attempt, _] in tried.items()} == dict.fromkeys(KEYS, 3)
    assert all(milliseconds > 0 for _, milliseconds in tried.values())
    # When the release before gives them new times, that counts from then on
    assert before.do("give_new_times", **asked) == ["MOVED", "replaced", "1"]
    tried = now.do("try_again", **asked, error="again")
    since_before = tried.pop("stays")
    assert since_before[0] == 4
    assert since_before[1] > 0
    assert tried == {"moved": [4, 0], "replaced": [1, 0], "dead": [1, 0]}
    # When they end, here and there, nothing is left
    now.do("end", **asked, keys=KEYS[:2])
    before.do("end", **asked, keys=KEYS[2:])
    assert now.do("look", url=url) == {"stored": {}, "counted": {}}
    assert not left_in(url)


def test_a_message_that_this_release_has_put_off_goes_on_in_the_one_before(before: Release, now: Release, url: str) -> None:
    asked: dict[str, Any] = {"url": url, "topic": "story"}
    before.do("send_keys", **asked, keys=["one", "two"])
    now.do("put_off", **asked)
    assert errors(before, url) == {"one": None, "two": None}
    before.do("put_off", **asked)
    assert before.do("try_again", **asked, error="once") == {"one": [1, None], "two": [1, None]}
    tried = now.do("try_again", **asked, error="twice")
    assert all(attempt == 2 and milliseconds > 0 for attempt, milliseconds in tried.values()), tried


def errors(release: Release, url: str) -> dict[str, str | None]:
    stored = release.do("look", url=url)["stored"]["story"]
    return {each["key"]: each["last_error"] for each in stored}


def left_in(url: str) -> list[bytes]:
    """Keys on Redis that do not go by themselves, but for those that a queue always has."""
    if not url.startswith("redis"):
        return []
    with redis.Redis.from_url(url.partition("?")[0]) as client:
        return [key for key in client.scan_iter() if not key.endswith(b":meta") and client.ttl(key) < 0]
