"""Messages that move on and on, while senders and workers go on and the mover is killed: none is lost, doubled or early."""

from pathlib import Path

import pytest

from tests.move.chain import run


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(2))
def test_no_message_is_lost_or_doubled_when_the_mover_is_killed(
    tmp_path: Path, redis_url: str, postgres_url: str, seed: int
) -> None:
    queues = [f"sqlite:///{tmp_path}/first.db", redis_url, postgres_url, f"sqlite:///{tmp_path}/last.db"]
    seen = run(30_000, 10, seed, tmp_path, queues, rate=20, after=1.5)
    print("\n".join(seen.lines()))
    assert sum(leg.kills for leg in seen.legs) >= 5
    assert seen.handled > 500
    assert seen.faults() == {}, (tmp_path / "said.txt").read_text()
