"""How busy the machine is with other programs, so that the tables can say so."""

import os
import time
from pathlib import Path

STAT = Path("/proc/stat")
LOOK = 0.5  # seconds


def busy(seconds: float = LOOK) -> float:
    """Processors that other programs use. Call it while nothing of ours runs."""
    used, all_of_it = _ticks()
    time.sleep(seconds)
    used_now, all_now = _ticks()
    return (os.cpu_count() or 1) * (used_now - used) / max(1, all_now - all_of_it)


def _ticks() -> tuple[int, int]:
    """Time that all processors have worked, and time that there was."""
    user, nice, system, idle, wait, *interrupts = map(int, STAT.read_text(encoding="ascii").splitlines()[0].split()[1:9])
    used = user + nice + system + sum(interrupts)
    return used, used + idle + wait
