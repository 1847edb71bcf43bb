"""Engine time outlives the process that read it."""

from pathlib import Path

from bide.clock import ManualClock
from bide.engines.base import NewMessage, Settings
from bide.engines.sqlite import source

LATER = 4_000_000_000_000


def test_time_that_was_shown_by_a_claim_of_nothing_is_not_shown_earlier_to_the_next_who_opens_the_file(tmp_path: Path) -> None:
    here = source(Settings(url=f"sqlite:///{tmp_path}/bide.db", clock=ManualClock()))
    first = here.sync()
    first.open()
    first.put([NewMessage("a", b"")], now=LATER)
    shown = first.claim(["nothing"], 1, 1, now=LATER + 5_000).now
    first.close()

    second = here.sync()
    second.open()
    assert second.claim(["nothing"], 1, 1, now=LATER).now >= shown
    second.close()


def test_closing_does_not_set_back_the_time_that_another_namespace_has_stored_since(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/bide.db"
    idle = source(Settings(url=url, namespace="idle", clock=ManualClock())).sync()
    busy = source(Settings(url=url, namespace="busy", clock=ManualClock())).sync()
    idle.open()
    busy.open()
    idle.claim(["nothing"], 1, 1, now=LATER)
    busy.put([NewMessage("a", b"")], now=LATER + 5_000)
    busy.close()
    idle.close()

    again = source(Settings(url=url, namespace="busy", clock=ManualClock())).sync()
    again.open()
    assert again.claim(["nothing"], 1, 1, now=LATER).now >= LATER + 5_000
    again.close()
