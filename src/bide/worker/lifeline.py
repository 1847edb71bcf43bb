"""A pipe to whoever has started this process: when its other end is closed, also by a death, the process has to stop."""

import os
import threading
from collections.abc import Callable


class Lifeline:
    """Listened to from the start: what a process imports may take long, or hang."""

    def __init__(self, file: int, cut: Callable[[], object]) -> None:
        """`cut` is called in a thread when the other end is closed."""
        os.set_inheritable(file, False)
        self.cut: Callable[[], object] = cut  # another one may take its place
        threading.Thread(target=self._wait, args=(file,), name="bide-lifeline", daemon=True).start()

    def _wait(self, file: int) -> None:
        os.read(file, 1)
        self.cut()
